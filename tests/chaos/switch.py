"""A network switch in a process: hosts are network namespaces, each with one device whose other end is this process.

    switch.py NAME=ADDRESS/BITS ...       on standard input, each answered by "ok":

    delay SECONDS    each way, of every frame        loss P       of so many of them, drawn
    rate BYTES       a second, to each host          cut A        a host from all; cut A:B two from each other
    hush A           no FIN and no RST leaves A      heal         all of it undone

When its standard input ends, so does it, and the namespaces are removed.
"""

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import selectors
import struct
import subprocess
import sys
import time

TUNSETIFF, TAP, NO_HEADER = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
QUEUE_SECONDS = 1.0  # what has to wait for longer than that, at the given rate, is dropped
FIN, RST = 0x01, 0x04


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def device_in(name):
    """The other end of a new device ``eth0`` inside the namespace."""
    enter = ctypes.CDLL(None, use_errno=True).setns
    with open("/proc/self/ns/net") as here, open(f"/run/netns/{name}") as there:
        if enter(there.fileno(), NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"no way into {name}")
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", b"eth0", TAP | NO_HEADER))
        enter(here.fileno(), NEW_NETWORK)
    return device


def ends_a_connection(frame):
    """Whether it is TCP over IPv4 with FIN or RST."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 6:
        return False
    return bool(frame[14 + 4 * (frame[14] & 15) + 13] & (FIN | RST))


class Switch:
    def __init__(self, addresses):
        self.devices = {}
        for name, address in addresses.items():
            ip("netns", "add", name)
            self.devices[name] = device_in(name)
            ip("-n", name, "addr", "add", address, "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", name, "link", "set", device, "up")
        self.known = {}  # where an Ethernet address was seen
        self.waiting, self.number = [], 0  # frames on their way: (when they arrive, number, to whom, frame)
        self.free = dict.fromkeys(addresses, 0.0)  # when the line to a host is free again
        self.draw = random.Random(0).random
        self.heal()

    def heal(self):
        self.seconds = self.lost = self.rate = 0.0
        self.cuts, self.hushed = set(), set()

    def obey(self, word, value=None):
        if word == "heal":
            self.heal()
        elif word == "cut":
            self.cuts.add(frozenset(value.split(":")))
        elif word == "hush":
            self.hushed.add(value)
        else:
            setattr(self, {"delay": "seconds", "loss": "lost", "rate": "rate"}[word], float(value))

    def take(self, source, frame, now):
        """A frame from a host, for the one it is addressed to, or for all."""
        target = self.known.get(frame[:6])
        self.known[frame[6:12]] = source
        if source in self.hushed and ends_a_connection(frame):
            return
        for name in [target] if target else self.devices:
            if name != source and not {frozenset([source]), frozenset([name]), frozenset([source, name])} & self.cuts:
                self.send(name, frame, now)

    def send(self, name, frame, now):
        if self.lost and self.draw() < self.lost:
            return
        if self.rate:
            if self.free[name] - now > QUEUE_SECONDS:
                return
            self.free[name] = now = max(now, self.free[name]) + len(frame) / self.rate
        if self.rate or self.seconds:
            self.number += 1
            heapq.heappush(self.waiting, (now + self.seconds, self.number, name, frame))
        else:
            self.deliver(name, frame)

    def deliver(self, name, frame):
        with contextlib.suppress(OSError):  # its queue is full: a switch drops what it cannot keep
            os.write(self.devices[name], frame)

    def run(self):
        """Until the standard input ends."""
        selector = selectors.DefaultSelector()
        selector.register(0, selectors.EVENT_READ, None)
        for name, device in self.devices.items():
            selector.register(device, selectors.EVENT_READ, name)
        print("ready", flush=True)
        while True:
            wait = max(0.0, self.waiting[0][0] - time.monotonic()) if self.waiting else None
            for key, _ in selector.select(wait):
                if key.data is None:
                    if not (text := os.read(0, 4096)):
                        return
                    for line in text.decode().splitlines():
                        self.obey(*line.split())
                        print("ok", flush=True)
                else:
                    self.drain(key.data)
            now = time.monotonic()
            while self.waiting and self.waiting[0][0] <= now:
                self.deliver(*heapq.heappop(self.waiting)[2:])

    def drain(self, name):
        now = time.monotonic()
        for _ in range(64):  # the others have their turn
            try:
                frame = os.read(self.devices[name], 65536)
            except OSError:
                return
            self.take(name, frame, now)


if __name__ == "__main__":
    hosts = dict(word.split("=") for word in sys.argv[1:])
    try:
        Switch(hosts).run()
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], stderr=subprocess.DEVNULL, check=False)
