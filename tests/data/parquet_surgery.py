"""Parquet files taken apart and put together again, so that single words in their footers and pages can lie.

The footer and the heads of pages are structures in Thrift's compact protocol: here {number of the field: (kind,
value)}, read and written without knowing what they mean. Numbers of fields are those of parquet.thrift.
"""

import zlib

BOOLEANS, INTEGERS, BYTE, DOUBLE, BINARY, LIST, STRUCT = (1, 2), (4, 5, 6), 3, 7, 8, 9, 12
# parquet.thrift: of the footer, of a row group, of a column, of its metadata, of the head of a page
SCHEMA, ROWS, GROUPS = 2, 3, 4
COLUMNS, GROUP_BYTES, GROUP_ROWS = 1, 2, 3
METADATA = 3
PATH, VALUES, UNPACKED, PACKED, DATA_AT, DICTIONARY_AT = 3, 5, 6, 7, 9, 11
PAGE, PAGE_UNPACKED, PAGE_PACKED, PAGE_CHECKSUM, PAGE_DATA, PAGE_DICTIONARY = 1, 2, 3, 4, 5, 7
PAGE_VALUES = 1  # of a data page's own head and of a dictionary's


def varint(number):
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def zigzag(number):
    return varint(((number << 1) ^ (number >> 63)) & (2**64 - 1))


def take_varint(data, p):
    number = shift = 0
    while True:
        number |= (data[p] & 127) << shift
        p, shift = p + 1, shift + 7
        if data[p - 1] < 128:
            return number, p


def take(data, p, kind):
    """(value, where it ends)"""
    if kind == STRUCT:
        return take_struct(data, p)
    if kind in INTEGERS:
        number, p = take_varint(data, p)
        return (number >> 1) ^ -(number & 1), p
    if kind == BINARY:
        size, p = take_varint(data, p)
        return data[p : p + size], p + size
    if kind == LIST:
        size, of = data[p] >> 4, data[p] & 15
        p += 1
        if size == 15:
            size, p = take_varint(data, p)
        items = []
        for _ in range(size):
            item, p = (data[p], p + 1) if of in BOOLEANS else take(data, p, of)
            items.append(item)
        return (of, items), p
    size = {BYTE: 1, DOUBLE: 8}[kind]
    return data[p : p + size], p + size


def take_struct(data, p=0):
    """({field: (kind, value)}, where it ends)"""
    fields, number = {}, 0
    while data[p]:
        delta, kind = data[p] >> 4, data[p] & 15
        p += 1
        if delta:
            number += delta
        else:
            number, p = take(data, p, 4)
        value, p = (None, p) if kind in BOOLEANS else take(data, p, kind)
        fields[number] = kind, value
    return fields, p + 1


def put(kind, value):
    if kind == STRUCT:
        return put_struct(value)
    if kind in INTEGERS:
        return zigzag(value)
    if kind == BINARY:
        return varint(len(value)) + value
    if kind == LIST:
        of, items = value
        head = bytes([len(items) << 4 | of]) if len(items) < 15 else bytes([0xF0 | of]) + varint(len(items))
        return head + b"".join(bytes([item]) if of in BOOLEANS else put(of, item) for item in items)
    return value


def put_struct(fields):
    found, before = bytearray(), 0
    for number, (kind, value) in sorted(fields.items()):
        delta = number - before
        found += bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + zigzag(number)
        found += b"" if kind in BOOLEANS else put(kind, value)
        before = number
    return bytes(found) + b"\0"


def get(fields, *path):
    """What stands at a path of fields and places in lists."""
    for step in path:
        fields = fields[step] if isinstance(fields, list) else fields[step][1]
        fields = fields[1] if isinstance(fields, tuple) else fields
    return fields


def set_to(fields, value, *path):
    """Have the field at the path say ``value``."""
    inside = get(fields, *path[:-1])
    inside[path[-1]] = inside[path[-1]][0], value


class Page:
    """The head of a page, and its bytes as they are stored."""

    def __init__(self, head, body):
        self.head, self.body = head, body

    def bytes(self):
        """The page again, its size and (where it has one) its checksum those of its bytes."""
        set_to(self.head, len(self.body), PAGE_PACKED)
        if PAGE_CHECKSUM in self.head:
            sum = zlib.crc32(self.body)
            set_to(self.head, sum - 2**32 * (sum >= 2**31), PAGE_CHECKSUM)
        return put_struct(self.head) + self.body


class File:
    """A Parquet file of one row group: its footer, and the pages of each column."""

    def __init__(self, data):
        size = int.from_bytes(data[-8:-4], "little")
        self.footer, _ = take_struct(data[-8 - size : -8])
        self.columns = [self._pages(data, column) for column in self.metadata()]

    def metadata(self):
        """Of each column, to be changed."""
        return [get(column, METADATA) for column in get(self.footer, GROUPS, 0, COLUMNS)]

    @staticmethod
    def _pages(data, column):
        first = min(get(column, field) for field in (DATA_AT, DICTIONARY_AT) if field in column)
        p, end, pages = first, first + get(column, PACKED), []
        while p < end:
            head, p = take_struct(data, p)
            pages.append(Page(head, data[p : p + get(head, PAGE_PACKED)]))
            p += get(head, PAGE_PACKED)
        return pages

    def column(self, name):
        """The number of a column by the first word of its path."""
        return [get(column, PATH)[0] for column in self.metadata()].index(name.encode())

    def bytes(self):
        """The file again: places and sizes are those of what is written, all other words as they stand."""
        body = bytearray(b"PAR1")
        for column, pages in zip(self.metadata(), self.columns, strict=True):
            begin = len(body)
            for page in pages:
                field = DICTIONARY_AT if PAGE_DICTIONARY in page.head else DATA_AT
                if page is pages[0] or field == DATA_AT and pages.index(page) == (PAGE_DICTIONARY in pages[0].head):
                    set_to(column, len(body), field)
                body += page.bytes()
            set_to(column, len(body) - begin, PACKED)
        footer = put_struct(self.footer)
        return bytes(body) + footer + len(footer).to_bytes(4, "little") + b"PAR1"
