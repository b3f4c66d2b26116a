"""
Verify a bundle with nothing of its host: python verify_bundle.py run.caxton KEY...
KEY is a public key of 64 hex digits that you know from elsewhere. See bundle.md.
"""
import base64, hashlib, json, sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

HEADER = {"$type", "blobs", "checkpoint", "earlier", "key", "run", "streams"}
EVENT = {"at", "digest", "hash", "seq", "span", "trace", "type", "version"}
LENGTHS = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}

def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()
def check(condition, what):
    if not condition:
        raise ValueError(what)
def unhex(text, size=32):
    check(len(data := bytes.fromhex(text)) == size and data.hex() == text, "not hex")
    return data
def unbase64(text):
    data = base64.b64decode(text, validate=True)
    check(base64.b64encode(data).decode() == text, "not Base64")
    return data

def objects(data):
    for line in data.splitlines(keepends=True):
        value = json.loads(line)
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
        check(isinstance(value, dict) and line == f"{text}\n".encode(), "not canonical")
        yield value
def number(value):
    check(type(value) is int and 0 <= value < 1 << 63, "not a number")
    if value < 128:
        return bytes([value])
    code = 0 if value < 1 << 8 else 1 if value < 1 << 16 else 2 if value < 1 << 32 else 3
    return bytes([0xCC + code]) + value.to_bytes(1 << code, "big")
def text(value):
    check(0 < len(raw := value.encode()) < 256, "a text of no such length")
    return (bytes([0xA0 | len(raw)]) if len(raw) < 32 else bytes([0xD9, len(raw)])) + raw

def unpack(data, at=0):  # a msgpack value, and the place behind it
    code, at = data[at], at + 1
    if code < 0x80 or code >= 0xE0 or code in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}.get(code, code), at
    if 0xCB <= code <= 0xD3:  # a float, which nobody asks for, and whole numbers
        end = at + (8 if code == 0xCB else 1 << (code & 3))
        return int.from_bytes(data[at:end], "big"), end
    kind = "map" if code < 0x90 or code >= 0xDE else "text" if 0xA0 <= code < 0xDC else "list"
    end = at + LENGTHS.get(code, 0)
    size = int.from_bytes(data[at:end], "big") if code in LENGTHS else code & (31 if kind == "text" else 15)
    if kind == "text":
        return data[end : end + size].decode(), end + size
    items = []
    for _ in range(2 * size if kind == "map" else size):
        item, end = unpack(data, end)
        items.append(item)
    return (dict(zip(items[::2], items[1::2])) if kind == "map" else items), end

def checkpoint(note, claimed, pinned):  # origin, size, root, and whether a pinned key signed
    body, _, signatures = note.partition("\n\n")
    origin, size, root, *_ = lines = body.split("\n")
    check(all(lines) and signatures.endswith("\n") and str(int(size)) == size, "no checkpoint")
    signers = set()
    for line in signatures[:-1].split("\n"):
        dash, name, encoded = line.split(" ")
        check(dash == "—" and name and len(raw := unbase64(encoded)) > 4, "no signature")
        for key in {claimed, *pinned}:
            if name == origin and raw[:4] == sha(name.encode(), b"\n\1", key)[:4]:
                Ed25519PublicKey.from_public_bytes(key).verify(raw[4:], f"{body}\n".encode())
                signers.add(key)
    check(claimed in signers and len(unbase64(root)) == 32, "not signed by the key in the bundle")
    return origin, int(size), unbase64(root), bool(signers & set(pinned))

def climb(first, last, start, proof):  # the roots of the old tree and of the new one
    before = after = start
    for part in map(unhex, proof):
        check(last, "a proof that is too long")
        if first & 1 or first == last:
            before, after = sha(b"\1", part, before), sha(b"\1", part, after)
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            after = sha(b"\1", after, part)
        first, last = first >> 1, last >> 1
    check(not last, "a proof that is too short")
    return before, after

def grew(old, old_root, new, new_root, proof):
    check(0 < old <= new, "the log shrank")
    if old == new:
        return check(not proof and old_root == new_root, "rewritten")
    start, proof = (unhex(proof[0]), proof[1:]) if old & old - 1 else (old_root, proof)
    first, last = old - 1, new - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    check(climb(first, last, start, proof) == (old_root, new_root), "rewritten")

def chained(event, stream, seq, previous):
    kept = {"payload", "salt"} & set(event)
    check(set(event) == EVENT | kept and len(kept) != 1 and event["seq"] == seq, "a missing event")
    digest = unhex(event["digest"])
    check(not kept or sha(unhex(event["salt"], 16), unbase64(event["payload"])) == digest, "a payload")
    ids = [b"\xc0" if event[key] is None else text(event[key]) for key in ("trace", "span")]
    head = [text(stream), number(seq), text(event["type"]), number(event["version"]), number(event["at"])]
    check(sha(previous, b"\x98\1", *head, *ids, digest) == unhex(event["hash"]), f"event {seq} of {stream}")
    return unhex(event["hash"])

def verify(data, pinned):
    header = next(lines := objects(data))
    check(set(header) == HEADER and header["$type"] == "caxton.bundle/v1", "not a bundle")
    key, before = unhex(header["key"]), None
    origin, size, root, trusted = checkpoint(header["checkpoint"], key, pinned)
    for one in header["earlier"]:
        of, old, old_root, _ = checkpoint(one["checkpoint"], key, pinned)
        check(of == origin and set(one) == {"checkpoint", "proof"}, "of another log")
        grew(old, old_root, size, root, one["proof"])
    for part in header["streams"]:
        check(set(part) == {"events", "index", "proof", "stream"}, "not a stream")
        stream, index, previous, begin = part["stream"], part["index"], bytes(32), {}
        for seq in range(1, part["events"] + 1):
            previous = chained(event := next(lines), stream, seq, previous)
            begin = event if seq == 1 else begin
        check(type(index) is int and 0 <= index < size, "no place in the log")
        check(climb(index, size - 1, sha(b"\0", previous), part["proof"])[1] == root, "not in the log")
        if trusted and (before or "payload" in begin):
            forked = unpack(unbase64(begin["payload"]))[0].get("forked_from")
            check(begin["type"] == "RunStarted" and forked == before, "another lineage")
        before = {"run": stream[4:], "seq": part["events"], "hash": previous.hex()}
    check(stream == f"run/{header['run']}", "of another run")
    blobs = [next(lines) for _ in range(header["blobs"])]
    check(blobs == sorted(blobs, key=lambda blob: blob["sha256"]), "blobs without order")
    check(len({blob["sha256"] for blob in blobs}) == len(blobs), "a blob twice")
    for blob in blobs:
        check(set(blob) == {"bytes", "sha256"}, "not a blob")
        check(sha(unbase64(blob["bytes"])) == unhex(blob["sha256"]), "another blob")
    check(next(lines, None) is None, "more than is announced")
    return "intact" if trusted else "signer_unknown"

def judge(data, pinned):
    try:
        return verify(data, pinned)
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration, RuntimeError, InvalidSignature):
        return "broken"

if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        verdict = judge(file.read(), [bytes.fromhex(key) for key in sys.argv[2:]])
    sys.exit(print(verdict) or (0 if verdict == "intact" else 5))
