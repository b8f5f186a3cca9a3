"""Files that a plan reads beside its tokens, as docs/data.md says: masks and indices."""
import hashlib
import struct

BLOCK = 4096


def short(data):
    return hashlib.sha256(data).digest()[:8]


def sampled(data):
    """What of a .bin its hash covers."""
    if len(data) <= 64 * BLOCK:
        return data
    step = (len(data) - BLOCK) // 63
    return b"".join(data[step * i:][:BLOCK] for i in range(63)) + data[-BLOCK:]


def write_mask(path, learnt):
    """Writes the .mask of a .bin; `learnt` has a truth value for each of its tokens."""
    data, bits = path.read_bytes(), bytearray((len(learnt) + 7) // 8)
    for i, one in enumerate(learnt):
        bits[i // 8] |= bool(one) << i % 8
    head = b"WEFTMASK" + struct.pack("<QQQQ", 1, len(learnt), sum(map(bool, learnt)), len(data))
    head += short(sampled(data)) + bytes(8)
    sums = b"".join(short(bits[i: i + BLOCK]) for i in range(0, len(bits), BLOCK))
    path.with_suffix(".mask").write_bytes(head + short(head) + bits + sums)


def write_index(path, lengths):
    """Writes the .idx of a .bin of 16-bit ids: documents of these lengths."""
    n, begins = len(lengths), [0]
    for length in lengths:
        begins.append(begins[-1] + 2 * length)
    path.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack(f"<QBQQ{n}i", 1, 8, n, n + 1, *lengths)
        + struct.pack(f"<{n}q{n + 1}q", *begins[:-1], *range(n + 1)))
