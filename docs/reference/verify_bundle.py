"""
Verify a bundle with nothing of its host: python verify_bundle.py run.caxton KEY...
KEY is a public key of 64 hex digits that you know from elsewhere. See bundle.md.
"""
import base64, hashlib, json, re, struct, sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

EVENT = {"at", "digest", "hash", "seq", "span", "trace", "type", "version"}
HEADER = {"$type", "blobs", "checkpoint", "earlier", "key", "run", "streams"}
PLACE = {"index", "proof", "stream"}
LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}

def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()
def check(condition, what):
    if not condition:
        raise ValueError(what)

# -- lines, and the values in them

def objects(file):
    limit, left = 1 << 20, 1 << 30  # the header, the file
    while line := file.readline(limit + 1):
        left -= len(line)
        check(len(line) <= limit and left >= 0, "too long")
        value = json.loads(line)
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
        check(line == f"{text}\n".encode(), "not canonical")
        yield value
        limit = 48 << 20
def fields(value, *sets):
    check(type(value) is dict and value.keys() in sets, "other keys")
    return value
def items(value, most):
    check(type(value) is list and len(value) <= most, "not a list")
    return value
def number(value, most=2**63 - 1):
    check(type(value) is int and 0 <= value <= most, "not a number")
    return value
def text(value, form="[ -~]+"):
    check(type(value) is str and re.fullmatch(form, value), "not a text")
    return value
def unhex(value, size=32):
    check(len(data := bytes.fromhex(text(value))) == size and data.hex() == value, "not hex")
    return data
def unbase64(value):
    data = base64.b64decode(value, validate=True)
    check(base64.b64encode(data).decode() == value, "not Base64")
    return data

# -- msgpack: what an envelope holds, written; what a payload holds, read

def packed(value):
    if value is None:
        return b"\xc0"
    if type(value) is str:
        check(len(raw := text(value).encode()) < 256, "too long a text")
        return (bytes([0xA0 | len(raw)]) if len(raw) < 32 else bytes([0xD9, len(raw)])) + raw
    if number(value) < 128:
        return bytes([value])
    code = 0 if value < 1 << 8 else 1 if value < 1 << 16 else 2 if value < 1 << 32 else 3
    return bytes([0xCC + code]) + value.to_bytes(1 << code, "big")
def unpack(data, at=0):  # a value, and the place behind it
    code, at = data[at], at + 1
    if code < 0x80 or code >= 0xE0 or code in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}.get(code, code - (code >> 7 << 8)), at
    if 0xCA <= code <= 0xD3:  # floats, and whole numbers
        size = 4 if code == 0xCA else 8 if code == 0xCB else 1 << (code & 3)
        form = ">f" if code == 0xCA else ">d" if code == 0xCB else ">" + "BHIQbhiq"[code - 0xCC]
        return struct.unpack(form, data[at : at + size])[0], at + size
    check(code < 0xC0 or code in LENGTHS, "not of JSON")
    end = at + LENGTHS.get(code, 0)
    size = int.from_bytes(data[at:end], "big") if end > at else code & (31 if code >= 0xA0 else 15)
    if 0xA0 <= code < 0xDC:  # text, or bytes
        check(end + size <= len(data), "cut")
        return data[end : end + size] if 0xC4 <= code <= 0xC6 else data[end : end + size].decode(), end + size
    map_ = code < 0x90 or code >= 0xDE
    found = []
    for _ in range(2 * size if map_ else size):
        value, end = unpack(data, end)
        found.append(value)
    return (dict(zip(found[::2], found[1::2])) if map_ else found), end
def payload(event):
    value, end = unpack(data := unbase64(event["payload"]))
    check(end == len(data) and type(value) is dict, "not a payload")
    return value

# -- checkpoints and the tree

def checkpoint(note, claimed, pinned):  # origin, size, root, and whether a pinned key signed
    check(len(text(note, "[ -~\n—]+").encode()) <= 16384, "too long")
    body, _, signatures = note.partition("\n\n")
    origin, size, root, *_ = lines = body.split("\n")
    check(all(lines) and len(lines) <= 64 and signatures.endswith("\n"), "not a checkpoint")
    text(size, "0|[1-9][0-9]{0,18}")
    signers = set()
    for line in items(signatures[:-1].split("\n"), 16):
        dash, name, encoded = line.split(" ")
        check(dash == "—" and text(name, r"[^\s+]{1,255}") and len(raw := unbase64(encoded)) > 4, "no signature")
        for key in {claimed, *pinned}:
            if name == origin and raw[:4] == sha(name.encode(), b"\n\1", key)[:4]:
                Ed25519PublicKey.from_public_bytes(key).verify(raw[4:], f"{body}\n".encode())
                signers.add(key)
    check(claimed in signers and len(unbase64(root)) == 32, "not signed by the key in the bundle")
    return origin, int(size), unbase64(root), bool(signers & set(pinned))
def climb(first, last, start, proof):  # the roots of the old tree and of the new one
    before = after = start
    for part in proof:
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
    start, proof = (proof[0], proof[1:]) if old & old - 1 else (old_root, proof)
    first, last = old - 1, new - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    check(climb(first, last, start, proof) == (old_root, new_root), "rewritten")
def hashes(proof):
    return [unhex(one) for one in items(proof, 64)]
def included(leaf, place, size, root):
    check(number(place["index"]) < size, "no place in the log")
    check(climb(place["index"], size - 1, sha(b"\0", leaf), hashes(place["proof"]))[1] == root, "not in the log")

# -- streams

def chained(event, stream, previous):  # the hash of an event
    fields(event, EVENT, EVENT | {"payload", "salt"})
    digest = unhex(event["digest"])
    if "payload" in event:
        check(sha(unhex(event["salt"], 16), unbase64(event["payload"])) == digest, "a payload")
    [number(event[key]) for key in ("seq", "version", "at")]
    ids = [None if event[key] is None else text(event[key]) for key in ("trace", "span")]
    head = [text(stream), event["seq"], text(event["type"]), event["version"], event["at"], *ids]
    check(sha(previous, b"\x98\1", *map(packed, head), digest) == unhex(event["hash"]), "an event")
    return unhex(event["hash"])
def read_stream(part, lines, before, size, root, trusted):  # its last event, and how many payloads are gone
    stream, previous, gone, first = part["stream"], bytes(32), 0, None
    for seq in range(1, part["events"] + 1):
        event = next(lines)
        previous = chained(event, stream, previous)
        check(event["seq"] == seq, "a missing event")
        check("payload" in event or gone == seq - 1, "only some payloads are missing")
        gone, first = gone + ("payload" not in event), first or event
    included(previous, part, size, root)
    check(bool(gone) == ("erased" in part), "payloads are missing, and no erasure is recorded")
    if gone:
        place = fields(part["erased"], PLACE | {"previous"})
        leaf = chained(event := next(lines), place["stream"], unhex(place["previous"]))
        included(leaf, place, size, root)
        check(event["type"] == "RunErased" and "payload" in event, "not an erasure")
        check(place["index"] > part["index"], "an erasure before its run")
        if trusted:
            said = payload(event)
            check(said.get("run") == stream[4:] and type(said.get("events")) is int, "another erasure")
            check(min(said["events"], part["events"]) == gone, "an erasure of other events")
    if trusted and (before or "payload" in first and first["type"] != "RunQueued"):
        check(first["type"] == "RunStarted" and payload(first).get("forked_from") == before, "another lineage")
    return {"run": stream[4:], "seq": part["events"], "hash": previous.hex()}, gone

def verify(lines, pinned):
    if type(header := next(lines)) is dict and header.get("$type") in [f"caxton.bundle/v{n}" for n in range(2, 10)]:
        return "of a later version", 0
    check(fields(header, HEADER)["$type"] == "caxton.bundle/v1", "not a bundle")
    key = unhex(header["key"])
    origin, size, root, trusted = checkpoint(header["checkpoint"], key, pinned)
    for one in items(header["earlier"], 64):
        of, old, old_root, _ = checkpoint(fields(one, {"checkpoint", "proof"})["checkpoint"], key, pinned)
        check(of == origin, "of another log")
        grew(old, old_root, size, root, hashes(one["proof"]))
    names = []
    for part in items(header["streams"], 128):
        fields(part, PLACE | {"events"}, PLACE | {"events", "erased"})
        check(text(part["stream"]).startswith("run/") and number(part["events"], 1_000_000), "not a run")
        names.append(part["stream"])
    check(names and len(set(names)) == len(names) and names[-1] == "run/" + text(header["run"]), "other streams")
    check(sum(part["events"] for part in header["streams"]) <= 1_000_000, "too many events")
    before, total, last = None, 0, ""
    for part in header["streams"]:
        before, gone = read_stream(part, lines, before, size, root, trusted)
        total += gone
    for _ in range(number(header["blobs"], 100_000)):
        blob = fields(next(lines), {"bytes", "sha256"})
        check(sha(unbase64(blob["bytes"])) == unhex(blob["sha256"]), "another blob")
        check(last < blob["sha256"], "blobs without order")
        last = blob["sha256"]
    check(next(lines, lines) is lines, "more than is announced")
    return "intact" if trusted else "signer_unknown", total

def judge(file, pinned):  # the verdict, and how many payloads were erased
    try:
        return verify(objects(file), pinned)
    except (ValueError, LookupError, TypeError, StopIteration, RuntimeError, struct.error, InvalidSignature):
        return "broken", 0

if __name__ == "__main__":
    try:
        with open(sys.argv[1], "rb") as file:
            verdict, gone = judge(file, [unhex(key) for key in sys.argv[2:]])
    except (IndexError, OSError, ValueError) as exc:
        print(exc if isinstance(exc, OSError) else "usage: verify_bundle.py FILE KEY...; a KEY is 64 hex digits", file=sys.stderr)
        sys.exit(2)
    print(verdict + (f": {gone} payloads were erased" if gone else ""))
    sys.exit(0 if verdict == "intact" else 5)
