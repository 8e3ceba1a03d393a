"""One C file without dependencies that scores rows of text fields, as they stand in a CSV file.

    int bigclf_scores(const char *const *fields, double *scores)

``fields`` are the columns that its comment lists, UTF-8, NULL where one is missing. It returns 0, or the number of the
column (from 1) that cannot be read, or that is missing where columns are features as they are, which need every value.
Features are made as ``table_rows`` makes them; text is refused by name, as are dates and numbers written in ways that
the file has no reader for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigclf import files
from bigclf.errors import RunError
from bigclf.features.encode import BINS, HASHED, TEXT, Finisher, category_hashes, learn, respelt_names
from bigclf.features.spec import DATE_PARTS, Categorical, Date, Numeric, Spec
from bigclf.features.tally import Tally
from bigclf.version import __version__

if TYPE_CHECKING:
    from bigclf.features.spec import Term
    from bigclf.model.model import Model


MOST_WEIGHTS = 2**18  # numbers in the file, some megabytes of text
READS = "dmYHMS"  # directives of a date's format
HELPERS = r"""
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES 65536 /* of the fields of one row that a category is made of */

static int is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The field without blanks around it; its length, or -1 where it is missing. */
static long trimmed(const char *field, const char **start) {
    if (!field) return -1;
    while (*field && is_blank(*field)) field++;
    long n = (long)strlen(field);
    while (n && is_blank(field[n - 1])) n--;
    *start = field;
    for (int k = 0; MISSING[k]; k++)
        if ((long)strlen(MISSING[k]) == n && !memcmp(MISSING[k], field, (size_t)n)) return -1;
    return n;
}

static const char *const TRUTHS[] = {"true", "True", "TRUE", "false", "False", "FALSE"};

/* A number, or a truth as 1 or 0, into x: 1 where there is one, 0 where it is missing, -1 where it cannot be read. */
static int number(const char *field, double *x) {
    const char *start;
    char text[400], *end;
    long n = trimmed(field, &start);
    if (n < 0) return 0;
    if (!n || n >= (long)sizeof text || memchr(start, 'x', (size_t)n) || memchr(start, 'X', (size_t)n)) return -1;
    memcpy(text, start, (size_t)n);
    text[n] = 0;
    for (int k = 0; k < 6; k++)
        if (!strcmp(text, TRUTHS[k])) return *x = k < 3, 1;
    *x = strtod(text, &end);
    return *end || *x != *x || fabs(*x) > 3.4028234663852886e38 ? -1 : 1;
}

/* The same of an amount as people write it: $1,234.50, or (80.00) for -80. */
static int amount(const char *field, double *x) {
    const char *start;
    char text[400];
    int n = 0, letters = 0, known = number(field, x);
    if (known >= 0) return known;
    long size = trimmed(field, &start);
    if (size >= (long)sizeof text - 2) return -1;
    if (*start == '(') text[n++] = '-';
    for (long k = 0; k < size; k++) {
        unsigned char c = (unsigned char)start[k];
        if ((c >= '0' && c <= '9') || c == '.' || c == '-') text[n++] = (char)c;
        else if ((c | 32) >= 'a' && (c | 32) <= 'z') letters++;
        else if (c < 128 && !strchr(" ,'$%+()", c)) return -1;
    }
    text[n] = 0;
    return letters > 3 || !n ? -1 : number(text, x);
}

static int digits(const char **p, const char *end, int least, int most, int *value) {
    int n = 0;
    *value = 0;
    while (*p < end && n < most && **p >= '0' && **p <= '9') *value = 10 * *value + (*(*p)++ - '0'), n++;
    return n >= least;
}

static int64_t days_of(int y, int m, int d) { /* since 1970, of the Gregorian calendar */
    y -= m <= 2;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int of_era = (int)(y - era * 400), of_year = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* Parts of a date: year, month, day, hour, minute, second, and microseconds since 1970. */
struct when { int part[6]; int64_t micros; };

/* By a format of %d %m %Y %H %M %S, or "" for ISO 8601; as number(). */
static int date(const char *field, const char *form, struct when *w) {
    const char *p;
    long n = trimmed(field, &p);
    if (n < 0) return 0;
    const char *end = p + n;
    int v[6] = {1970, 1, 1, 0, 0, 0}, shift = 0, micros = 0;
    if (*form) {
        for (; *form; form++) {
            if (*form != '%') {
                if (p >= end || *p++ != *form) return -1;
                continue;
            }
            int at = (int)(strchr(WHICH, *++form) - WHICH);
            if (!digits(&p, end, at ? 1 : 4, at ? 2 : 4, v + at)) return -1;
        }
    } else {
        static const char *between = "--T::";
        for (int k = 0; k < 6; k++) {
            if (k && k != 3 && (k < 3 || p < end)) {
                if (k > 3 && (*p == 'Z' || *p == '+' || *p == '-')) break;
                if (p >= end || *p++ != between[k - 1]) return -1;
            } else if (k == 3) {
                if (p == end) break;
                if (*p != 'T' && *p != ' ') return -1;
                p++;
            } else if (p == end) break;
            if (!digits(&p, end, k ? 2 : 4, k ? 2 : 4, v + k)) return -1;
        }
        if (p < end && *p == '.') {
            int unit = 100000;
            for (p++; p < end && *p >= '0' && *p <= '9'; p++, unit /= 10) micros += (*p - '0') * unit;
        }
        if (p < end && *p == 'Z') p++;
        else if (p < end && (*p == '+' || *p == '-')) {
            int hours, minutes = 0, sign = *p++ == '-' ? -1 : 1;
            if (!digits(&p, end, 2, 2, &hours)) return -1;
            if (p < end && *p == ':') p++;
            if (p < end && !digits(&p, end, 2, 2, &minutes)) return -1;
            shift = sign * (60 * hours + minutes);
        }
    }
    static const int lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (p != end || v[1] < 1 || v[1] > 12 || v[2] < 1 || v[2] > lengths[v[1] - 1]) return -1;
    if (v[3] > 23 || v[4] > 59 || v[5] > 59) return -1;
    if (v[1] == 2 && v[2] == 29 && (v[0] % 4 || (v[0] % 100 == 0 && v[0] % 400))) return -1;
    int64_t seconds = days_of(v[0], v[1], v[2]) * 86400 + v[3] * 3600 + v[4] * 60 + v[5] - 60 * (int64_t)shift;
    w->micros = seconds * 1000000 + micros;
    int64_t day = seconds >= 0 ? seconds / 86400 : -((86399 - seconds) / 86400), z = day + 719468;
    int64_t era = (z >= 0 ? z : z - 146096) / 146097, of_era = z - era * 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    w->part[1] = (int)(month < 10 ? month + 3 : month - 9);
    w->part[0] = (int)(year + era * 400 + (w->part[1] <= 2));
    w->part[2] = (int)(of_year - (153 * month + 2) / 5 + 1);
    w->part[3] = (int)((seconds - day * 86400) / 3600);
    w->part[4] = (int)(((day + 3) % 7 + 7) % 7); /* weekday, Monday 0 */
    return 1;
}

/* MurmurHash3 (x86, 32 bits, seed 0). */
static uint32_t rotated(uint32_t x, int r) { return x << r | x >> (32 - r); }

static uint32_t hash_of(const char *name, size_t size) {
    const unsigned char *p = (const unsigned char *)name;
    uint32_t h = 0, k;
    size_t n = size;
    for (; n >= 4; n -= 4, p += 4) {
        k = p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
        h = rotated(h ^ rotated(k * 0xCC9E2D51u, 15) * 0x1B873593u, 13) * 5 + 0xE6546B64u;
    }
    if (n) {
        k = p[0] | (n > 1 ? p[1] << 8 : 0) | (n > 2 ? (uint32_t)p[2] << 16 : 0);
        h ^= rotated(k * 0xCC9E2D51u, 15) * 0x1B873593u;
    }
    h ^= (uint32_t)size;
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    return h ^ h >> 16;
}

/* The hash of "a&b=value&value"; 0 in *there where a single value is missing. -1: too long. */
static int category(const char *const *fields, const int *columns, const char *lead, int lower, int *there,
                    uint32_t *hash) {
    char text[MOST_BYTES];
    size_t size = strlen(lead);
    memcpy(text, lead, size);
    *there = 1;
    for (int k = 0; columns[k] >= 0; k++) {
        const char *start;
        long n = trimmed(fields[columns[k]], &start);
        if (n < 0) *there = 0, n = 0;
        if (size + (size_t)n + 2 > sizeof text) return -1;
        if (k) text[size++] = '&';
        for (long i = 0; i < n; i++)
            text[size++] = lower && start[i] >= 'A' && start[i] <= 'Z' ? start[i] + 32 : start[i];
    }
    *hash = hash_of(text, size);
    return 0;
}

static int place_in(const uint32_t *keys, int n, uint32_t key) {
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (keys[middle] < key) low = middle + 1;
        else high = middle;
    }
    return low < n && keys[low] == key ? low : -1;
}

static void add(double *scores, int place, double x) {
    for (int k = 0; k < COLUMNS; k++) scores[k] += WEIGHTS[(long)place * COLUMNS + k] * x;
}
"""


def write(model: Model, path: str) -> list[str]:
    """Write the file.

    Raises
    ------
    RunError : what it cannot hold, with the column.
    """
    files.publish_text(path, source(model))
    columns = ", ".join(finisher_of(model).spec.columns)
    return [f"bigclf_scores(fields, scores) takes the columns {columns}, as text; compile it with -lm"]


def source(model: Model) -> str:
    """The file's text."""
    finisher = finisher_of(model)
    spec, learned = finisher.spec, finisher.learned
    k, d = model.intercept_.size, model.n_features
    if d * k > MOST_WEIGHTS:
        raise RunError(
            f"{d:,} x {k} weights are too many for a C file: at most {MOST_WEIGHTS:,}; --to numpy holds more"
        )
    if spec.decimal != ".":
        raise RunError("C reads numbers with a decimal point alone; --to numpy takes commas")
    columns = list(spec.columns)
    weights = np.asarray(model.dense_weights(), np.float64).T
    parts = [
        f"/* Made by bigclf {__version__}: {model.method.get('name')}, {d:,} features.\n\n   fields:\n",
        *(f"     {number}: {_safe(name)}\n" for number, name in enumerate(columns)),
        f"   scores: {k}, {_what(model)}\n*/\n",
        "#include <stdint.h>\n\n",
        f"#define COLUMNS {k}\n",
        f"static const char *const MISSING[] = {{{', '.join([*map(_text, spec.missing_values), '0'])}}};\n",
        'static const char WHICH[] = "YmdHMS";\n',
        _array("double", "WEIGHTS", [x.hex() for x in weights.ravel().tolist()]),
        _array("double", "BIAS", [float(x).hex() for x in model.intercept_.tolist()]),
        _array("double", "EDGES", [float(x).hex() for x in learned.edges.tolist()]),
        _array("uint32_t", "KEYS", [f"{x}u" for x in learned.keys.tolist()]),
    ]
    body = [_term(finisher, t, term, columns, needed=not model.learned) for t, term in enumerate(spec.terms)]
    labels = "" if model.regression else _labels(model)
    function = (
        "int bigclf_scores(const char *const *fields, double *scores) {\n"
        "    double x = 0;\n    float kept;\n    struct when w;\n    uint32_t h;\n    int there, place;\n"
        "    (void)x, (void)kept, (void)w, (void)h, (void)there, (void)place; /* not every model needs all */\n"
        "    (void)number, (void)amount, (void)date, (void)category, (void)place_in, (void)EDGES, (void)KEYS;\n"
        "    for (int k = 0; k < COLUMNS; k++) scores[k] = BIAS[k];\n" + "".join(body) + "    return 0;\n}\n"
    )
    return "".join([*parts, HELPERS, "\n", function, labels])


def finisher_of(model: Model) -> Finisher:
    """What makes its features of columns; of columns of numbers that are the features as they are, the numbers.

    Raises
    ------
    RunError : there are none that are known by their names.
    """
    if model.learned:
        return model.finisher
    names = model.plain_columns
    if names is None:
        raise RunError("C takes columns by their names, and this model knows none; --to numpy takes sparse rows")
    spec = Spec(terms=tuple(Numeric(name, scale="none", missing="ignore") for name in names))
    return Finisher(spec, learn(spec, Tally(spec)))


def _what(model: Model) -> str:
    if model.regression:
        return "the number"
    return "at least 0 for the second class" if model.binary else "one a class, the first largest is the one"


def _labels(model: Model) -> str:
    names = ", ".join(_text(str(label)) for label in model.classes_.tolist())
    choice = "scores[0] >= 0" if model.binary else "best"
    loop = "" if model.binary else (
        "    int best = 0;\n    for (int k = 1; k < COLUMNS; k++)\n        if (scores[k] > scores[best]) best = k;\n"
    )  # fmt: skip
    head = "int bigclf_class(const double *scores) { /* its place in bigclf_classes */\n"
    return f"\nconst char *const bigclf_classes[] = {{{names}}};\n\n{head}{loop}    return {choice};\n}}\n"


def _term(finisher: Finisher, t: int, term: Term, columns: list[str], *, needed: bool) -> str:
    """Statements that add what a term gives; ``needed`` : a number that is missing is an error."""
    learned = finisher.learned
    kind, first = int(learned.kind[t]), int(learned.first[t])
    column = columns.index(term.columns[0])
    if kind == TEXT or not isinstance(term, Numeric | Date | Categorical):
        raise RunError(f"column {term.columns[0]}: C cannot take text; leave it out, or export --to numpy")
    if isinstance(term, Categorical):
        return _category(finisher, t, term, [columns.index(name) for name in term.columns])
    indicator = term.missing == "indicator"
    a, b = learned.edges_at[t : t + 2].tolist()
    if isinstance(term, Numeric):
        reader = "number" if term.written == "plain" else "amount"
        read = f"    there = {reader}(fields[{column}], &x);\n"
        read += "    if (there > 0) x = copysign(log1p(fabs(x)), x);\n" * (term.scale == "log")
        zeros = term.scale != "none"
    else:
        form = term.format or ""
        if any(after not in READS for after in form.split("%")[1:] for after in after[:1]) or form.endswith("%"):
            raise RunError(f"column {term.column}: C has no reader of dates like {form!r}; --to numpy does")
        read = f"    there = date(fields[{column}], {_text(form)}, &w);\n"
        places = {"month": "w.part[1] - 1", "day": "w.part[2] - 1", "weekday": "w.part[4]", "hour": "w.part[3]"}
        if term.part in places:
            gone = f"    if (there == 0) add(scores, {first + DATE_PARTS[term.part]}, 1);\n" * indicator
            return (f"{read}    if (there < 0) return {column + 1};\n{gone}"
                    f"    if (there) add(scores, {first} + {places[term.part]}, 1);\n")  # fmt: skip
        value = "(double)w.micros / 86400000000.0" if term.part == "time" else "w.part[0]"
        read, zeros = f"{read}    if (there > 0) x = {value};\n", True
    gone_at = first + (b - a + 1 if kind == BINS else 1)
    lines = f"{read}    if (there {'<=' if needed else '<'} 0) return {column + 1};\n"
    lines += f"    if (there == 0) add(scores, {gone_at}, 1);\n" * indicator
    guard = "there" if zeros else "there && x != 0"
    if kind == BINS:
        find = f"for (place = 0; place < {b - a} && EDGES[{a} + place] <= x; place++);"
        return f"{lines}    if ({guard}) {{\n        {find}\n        add(scores, {first} + place, 1);\n    }}\n"
    mean, scale = float(learned.mean[t]).hex(), float(learned.scale[t]).hex()
    return f"{lines}    if ({guard}) kept = (float)((x - {mean}) / {scale}), add(scores, {first}, kept);\n"


def _category(finisher: Finisher, t: int, term: Categorical, places: list[int]) -> str:
    spec, learned = finisher.spec, finisher.learned
    kind, first = int(learned.kind[t]), int(learned.first[t])
    a, b = learned.keys_at[t : t + 2].tolist()
    lead = f"{'&'.join(term.columns)}="
    if term.lowercase and not learned.names.tobytes().isascii():
        raise RunError(f"column {term.columns[0]}: C lowers ASCII letters alone; --to numpy lowers all")
    of = ", ".join(map(str, [*places, -1]))
    ignored = len(places) == 1 and term.missing != "indicator"
    lines = (f"    {{\n        static const int of[] = {{{of}}};\n        if (category(fields, of, {_text(lead)}, "
             f"{int(term.lowercase)}, &there, &h)) return {places[0] + 1};\n    }}\n")  # fmt: skip
    guard = "if (there) " if ignored else ""
    if told := respelt_names(spec, learned, t):
        written, meant = (category_hashes(term, list(texts)) for texts in (told, told.values()))
        order = np.argsort(written)
        tables = [_array("uint32_t", name, [f"{h}u" for h in hashes[order].tolist()])
                  for name, hashes in (("written", written), ("meant", meant))]  # fmt: skip
        lines += f"    {{\n{''.join(tables)}"
        lines += f"        if ((place = place_in(written, {order.size}, h)) >= 0) h = meant[place];\n    }}\n"
    if kind == HASHED:
        sign = "(int32_t)h < 0 ? -1 : 1" if spec.signed else "1"
        size = "((int32_t)h < 0 ? (uint32_t)-(int64_t)(int32_t)h : h)"
        return f"{lines}    {guard}add(scores, {first} + (int)({size} % {2**learned.bits}u), {sign});\n"
    return (f"{lines}    {guard}if ((place = place_in(KEYS + {a}, {b - a}, h)) >= 0) "
            f"add(scores, {first} + place, 1);\n")  # fmt: skip


def _array(kind: str, name: str, values: list[str]) -> str:
    lines = [", ".join(values[k : k + 4]) for k in range(0, len(values), 4)] or ["0"]
    return f"static const {kind} {name}[] = {{\n    " + ",\n    ".join(lines) + "\n};\n"


def _text(text: str) -> str:
    """A string of C; what is no plain letter by its octal number, which ends after three digits."""
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in text.encode())
    return f'"{"".join(plain)}"'


def _safe(text: str) -> str:
    """A name that cannot end a comment."""
    return text.replace("*/", "* /").replace("\n", " ")
