# SPDX-License-Identifier: Apache-2.0
"""A rank that sends bfloat16 to the others, for the tests of KOLO_LOSSLESS.

usage: lossless.py normal|noise MIB CALLS   (as a rank: bytes of a call, and how many)
"""
import array
import random
import re
import sys



def numbers(kind, length):
    """As gradients are, or with no pattern at all."""
    draw = random.Random(5)
    if kind == "noise":
        return draw.randbytes(1 << 16) * (length >> 16)
    floats = array.array("f", (draw.gauss(0, 1e-3) for _ in range(1 << 15))).tobytes()
    out = bytearray(1 << 16)
    out[0::2], out[1::2] = floats[2::4], floats[3::4]
    return bytes(out) * (length >> 16)


def coded(said):
    """(bytes that were coded, what was left of them) of all connections that a rank's log tells of."""
    lines = re.findall(r"tcp: rank \d+ to \d+: (\d+) bytes of bfloat16 went as (\d+)", said)
    return sum(int(line[0]) for line in lines), sum(int(line[1]) for line in lines)


def main():
    import kolo

    data = numbers(sys.argv[1], int(sys.argv[2]) << 20)
    with kolo.Comm() as comm:
        out = bytearray(len(data) * comm.size)
        for _ in range(int(sys.argv[3])):
            comm.all_gather(kolo.Buffer(data, kolo.Type.BFLOAT16), kolo.Buffer(out, kolo.Type.BFLOAT16))
        assert out == data * comm.size


if __name__ == "__main__":
    main()
