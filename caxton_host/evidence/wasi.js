// The functions of WASI preview 1, answered from a recording as the host answers them: files are
// a tree in memory, the time is that of the run and what it has slept. A place outside memory is a
// trap; everything else that is wrong is an error number.
// @ts-check

const ERRNO = /** @type {const} */ ({
  ...{ BADF: 8, EXIST: 20, ILSEQ: 25, INVAL: 28, ISDIR: 31, MFILE: 33, NAMETOOLONG: 37, NOENT: 44, NOSPC: 51, NOTDIR: 54 },
  ...{ NOTEMPTY: 55, NOTSUP: 58, ROFS: 69, SPIPE: 70, NOTCAPABLE: 76 },
});
const MOST_OPEN = 256, MOST_VECTORS = 1024, MOST_MOVED = 16 * MIB, MOST_NODES = 4096, LONGEST_PATH = 4096, LONGEST_NAME = 255;
const LAST = 2n ** 63n - 1n, ALL_RIGHTS = (1n << 30n) - 1n, READS = 1n << 1n, WRITES = 1n << 6n;
const STREAM = 0, FOLDER = 3, FILE = 4, CLOCKS = 4;

class WasiError extends Error {
  errno = 0;
}
/** @param {keyof typeof ERRNO} name @returns {never} */
function refuse(name) {
  throw Object.assign(new WasiError(name), { errno: ERRNO[name] });
}

/**
 * A file, a folder or a stream. `data` has room for more than `size` bytes; `sink` takes what is
 * written into a stream; `above` is null of the root and of what was removed.
 * @typedef {{ kind: number, number: bigint, at: bigint, readOnly: boolean, linked: boolean, opened: number, data: Uint8Array, size: number,
 *   sink: ((data: Uint8Array) => void) | null, above: WasiNode | null, entries: Map<string, WasiNode> }} WasiNode
 * @typedef {{ node: WasiNode, reads: boolean, writes: boolean, appends: boolean, at: bigint, listing: [string, WasiNode][] }} Opened
 * @typedef {{ folder: WasiNode, name: string, node: WasiNode | undefined, isFolder: boolean }} Place
 * @typedef {[size: number, value: number | bigint][]} Fields
 */

/** @param {number} kind @param {Partial<WasiNode>} more @returns {WasiNode} */
const nodeOf = (kind, more) => ({
  ...{ kind, number: 0n, at: 0n, readOnly: false, linked: true, opened: 0, data: new Uint8Array(), size: 0, sink: null, above: null },
  ...{ entries: new Map(), ...more },
});
/** @param {WasiNode} node @param {Partial<Opened>} [more] @returns {Opened} */
const openOf = (node, more) => ({ node, reads: true, writes: false, appends: false, at: 0n, listing: [], ...more });

/** Numbers one behind the other, the lowest byte first, each of so many bytes. @param {Fields} fields */
function fieldsOf(fields) {
  const data = new DataView(new ArrayBuffer(fields.reduce((sum, [size]) => sum + size, 8)));
  const at = fields.reduce((at, [size, value]) => (data.setBigUint64(at, BigInt.asUintN(64, BigInt(value)), true), at + size), 0);
  return new Uint8Array(data.buffer, 0, at);
}

/** The files of a program. */
class Tree {
  /** @param {[string, Uint8Array][]} files @param {number} room bytes that may be written @param {() => bigint} now */
  constructor(files, room, now) {
    this.room = room;
    this.now = now;
    this.left = MOST_NODES;
    this.count = 0n;
    this.root = nodeOf(FOLDER, { number: ++this.count, at: now() });
    for (const [path, data] of files) {
      const steps = path.split("/"), name = steps.pop() ?? "";
      const folder = steps.reduce((above, step) => {
        const known = above.entries.get(step);
        const inner = known?.kind === FOLDER ? known : nodeOf(FOLDER, { number: ++this.count, at: now(), above, readOnly: true });
        above.entries.set(step, inner);
        return inner;
      }, this.root);
      folder.entries.set(name, nodeOf(FILE, { number: ++this.count, at: now(), data, size: data.length, readOnly: true }));
    }
    if (!this.root.entries.has("tmp")) this.makeFolder(this.place(this.root, UTF8.encode("tmp")));
  }

  /** Resolve a path, which cannot leave *base*. @param {WasiNode} base @param {Uint8Array} path @returns {Place} */
  place(base, path) {
    if (path.length > LONGEST_PATH) refuse("NAMETOOLONG");
    const text = decoded(path) ?? refuse("ILSEQ"), steps = text.split("/");
    if (!text) refuse("NOENT");
    if (text.includes("\0")) refuse("INVAL");
    if (text.startsWith("/")) refuse("NOTCAPABLE");
    if (steps.some((step) => UTF8.encode(step).length > LONGEST_NAME)) refuse("NAMETOOLONG");
    const walked = /** @type {[WasiNode, string][]} */ ([]);
    let here = /** @type {WasiNode | undefined} */ (base);
    for (const step of steps.filter((one) => one && one !== ".")) {
      if (!here) return refuse("NOENT");
      if (here.kind !== FOLDER) refuse("NOTDIR");
      if (step === "..") [here] = walked.pop() ?? refuse("NOTCAPABLE");
      else {
        walked.push([here, step]);
        here = here.entries.get(step);
      }
    }
    const [folder, name] = walked.at(-1) ?? [base, ""];
    return { folder, name, node: here, isFolder: ["", ".", ".."].includes(steps[steps.length - 1]) };
  }
  /** @param {Place} place */
  taken = ({ node, isFolder }) => (node ? (isFolder && node.kind !== FOLDER ? refuse("NOTDIR") : node) : refuse("NOENT"));
  /** @param {Place} place */
  changeable({ name, folder, node }) {
    if (!name) refuse("INVAL");
    if (folder.readOnly || node?.readOnly) refuse("ROFS");
    if (!folder.linked) refuse("NOENT");
  }
  /** @param {Place} place @param {number} kind */
  make({ folder, name }, kind) {
    if (!this.left) refuse("NOSPC");
    this.left -= 1;
    const made = nodeOf(kind, { number: ++this.count, at: this.now(), above: kind === FOLDER ? folder : null });
    folder.entries.set(name, made);
    return made;
  }
  /** @param {Place} place @param {number} how @param {boolean} writes */
  open(place, how, writes) {
    const [create, folder, exclusive, truncate] = [1, 2, 4, 8].map((bit) => (how & bit) !== 0);
    if (!place.node && create) {
      if (folder || place.isFolder) refuse("INVAL");
      this.changeable(place);
      return this.make(place, FILE);
    }
    const node = this.taken(place);
    if (create && exclusive) refuse("EXIST");
    if (node.kind === FOLDER) return truncate ? refuse("ISDIR") : node;
    if (folder) refuse("NOTDIR");
    if (node.readOnly && (writes || truncate)) refuse("ROFS");
    if (truncate) this.resize(node, 0);
    return node;
  }
  /** @param {Place} place */
  makeFolder(place) {
    if (place.node) refuse("EXIST");
    this.changeable(place);
    this.make(place, FOLDER);
  }
  /** @param {Place} place @param {number} kind */
  remove(place, kind) {
    const node = this.taken(place);
    this.changeable(place);
    if (node.kind !== kind) refuse(kind === FOLDER ? "NOTDIR" : "ISDIR");
    this.unlink(place, node);
  }
  /** @param {Place} place @param {WasiNode} node */
  unlink({ folder, name }, node) {
    if (node.entries.size) refuse("NOTEMPTY");
    folder.entries.delete(name);
    node.linked = false;
    this.left += 1;
    this.drop(node, 0);
  }
  /** @param {Place} source @param {Place} target */
  rename(source, target) {
    const node = this.taken(source);
    this.changeable(source);
    this.changeable(target);
    if (target.node === node) return;
    if (node.kind === FOLDER) {
      for (let above = /** @type {WasiNode | null} */ (target.folder); above; above = above.above) if (above === node) refuse("INVAL");
    } else if (target.isFolder) refuse("NOTDIR");
    if (target.node && target.node.kind !== node.kind) refuse(node.kind === FILE ? "ISDIR" : "NOTDIR");
    if (target.node) this.unlink(target, target.node);
    source.folder.entries.delete(source.name);
    target.folder.entries.set(target.name, node);
    if (node.kind === FOLDER) node.above = target.folder;
  }
  /** @param {WasiNode} node @param {number} start @param {Uint8Array} data */
  write(node, start, data) {
    const end = start + data.length;
    if (start > node.size) this.resize(node, end);
    this.grow(node, end - node.size);
    node.data.set(data, start);
    node.size = Math.max(node.size, end);
  }
  /** @param {WasiNode} node @param {number} size */
  resize(node, size) {
    this.grow(node, size - node.size);
    this.room += Math.max(node.size - size, 0);
    node.data.fill(0, size);
    node.size = size;
  }
  /** @param {WasiNode} node @param {number} more */
  grow(node, more) {
    if (node.readOnly) refuse("ROFS");
    if (more > this.room) refuse("NOSPC");
    this.room -= Math.max(more, 0);
    node.at = this.now();
    if (node.size + more > node.data.length) node.data = concat([node.data.subarray(0, node.size), new Uint8Array(node.size + 2 * more)]);
  }
  /** @param {WasiNode} node @param {number} opened descriptors more or less */
  drop(node, opened) {
    node.opened += opened;
    if (node.kind !== FILE || node.linked || node.opened || node.readOnly) return;
    this.room += node.size;
    Object.assign(node, { data: new Uint8Array(), size: 0 });
  }
}

class WasiGuest extends Guest {
  slept = 0n;
  left = this.limits.wasi_calls;
  printed = /** @type {Uint8Array[]} */ ([]);
  lastLine = new Uint8Array();
  files = /** @type {Map<number, Opened>} */ (new Map());
  args = /** @type {Uint8Array[]} */ ([]);
  env = /** @type {Uint8Array[]} */ ([]);
  tree = /** @type {Tree | null} */ (null);

  imports() {
    const answers = Object.entries(WASI).map(([name, method]) => {
      const answer = (/** @type {any[]} */ ...given) => {
        try {
          method(this, ...given);
          return 0;
        } catch (error) {
          if (error instanceof WasiError) return error.errno;
          throw error;
        }
      };
      return [name, this.guarded(answer, () => this.chargeWasi())];
    });
    return { ...super.imports(), wasi_snapshot_preview1: Object.fromEntries(answers) };
  }
  chargeWasi() {
    if (this.disk && --this.left < 0) this.over("wasi_calls", "more calls of WASI than the limit allows");
  }
  begin() {
    const { args = [], env = {}, files = {} } = this.started.command ?? {}, { input } = this.started;
    this.args = args.map((/** @type {string} */ one) => UTF8.encode(`${one}\0`));
    this.env = entriesOf(env).map(([name, value]) => UTF8.encode(`${name}=${value}\0`));
    const tree = (this.tree = new Tree(entriesOf(files).map(([path, digest]) => [path, this.blob(digest)]), this.limits.scratch, () => this.time));
    const data = UTF8.encode(typeof input === "string" ? input : input === null ? "" : jsonOf(input));
    const taking = (/** @type {(data: Uint8Array) => void} */ sink) => openOf(nodeOf(STREAM, { sink: sink.bind(this) }), { reads: false, writes: true });
    const opened = [openOf(nodeOf(STREAM, { data, size: data.length })), taking(this.print), taking(this.tell), openOf(tree.root)];
    this.files = new Map(opened.entries());
    return tree;
  }
  get disk() {
    return this.tree ?? this.begin();
  }
  get time() {
    return least(BigInt(this.clock) * 1000n + this.slept, LAST);
  }

  /** What was printed is the output, and a last line is logged. @override @param {End} end @returns {End} */
  finished(end) {
    if (this.lastLine.length) this.tell(UTF8.encode("\n"));
    if (end.kind !== "returned" || this.result || !this.printed.length) return end;
    const data = concat(this.printed), most = this.limits.output;
    const text = decoded(data), output = (text !== null && attempt(() => pack(fromJSON(text)))) || pack(LENIENT.decode(data));
    return output.length > most ? { kind: "limit", limit: "output", message: tooMany(output.length, most) } : this.keep(output, end);
  }
  /** @param {Uint8Array} data */
  print(data) {
    const size = this.printed.reduce((sum, one) => sum + one.length, data.length);
    if (size > this.limits.output) this.over("output", tooMany(size, this.limits.output));
    if (data.length) this.printed.push(data);
  }
  /** @param {Uint8Array} data */
  tell(data) {
    for (let start = 0; this.sent <= this.limits.log; ) {
      const end = data.indexOf(10, start), rest = data.subarray(start, end < 0 ? undefined : end);
      const line = concat([this.lastLine, rest.subarray(0, this.mostOfLine - this.lastLine.length)]);
      this.lastLine = end < 0 ? line : new Uint8Array();
      if (end < 0) return;
      this.say(2, line);
      start = end + 1;
    }
  }

  /** @param {number} pointer @param {number} size @param {number | bigint} value */
  putNumber = (pointer, size, value) => this.put(pointer, fieldsOf([[size, value]]));
  /** @param {Uint8Array[]} texts @param {number} pointers @param {number} buffer */
  putTexts(texts, pointers, buffer) {
    for (const text of texts) {
      this.putNumber(pointers, 4, buffer);
      this.put(buffer, text);
      [pointers, buffer] = [pointers + 4, buffer + text.length];
    }
  }
  /** @param {Uint8Array[]} texts @param {number} count @param {number} size */
  putSizes(texts, count, size) {
    this.putNumber(count, 4, texts.length);
    this.putNumber(size, 4, concat(texts).length);
  }
  /** @param {WasiNode} node @param {number} out */
  putStat = ({ number, kind, size, at }, out) => this.put(out, fieldsOf([[8, 0], [8, number], [8, kind], [8, 1], [8, size], [8, at], [8, at], [8, at]]));
  /** The places of a read or write, of so many bytes as one call moves. @param {number} vectors @param {number} count */
  vectors(vectors, count) {
    if (count >>> 0 > MOST_VECTORS) refuse("INVAL");
    const view = new DataView(this.read(vectors, count * 8).buffer);
    let left = MOST_MOVED;
    return Array.from({ length: count }, (_, n) => {
      const place = view.getUint32(n * 8, true), length = view.getUint32(n * 8 + 4, true), moved = Math.min(length, left);
      this.check(place, length);
      left -= moved;
      return [place, moved];
    });
  }

  /** What is open under a number; of the wrong kind, it is the error of that. @param {number} number @param {number} [kind] */
  of(number, kind) {
    const one = this.files.get(number >>> 0) ?? refuse("BADF"), is = one.node.kind;
    return kind === undefined || is === kind ? one : refuse(kind === FOLDER ? "NOTDIR" : is === FOLDER ? "ISDIR" : "SPIPE");
  }
  /** @param {number} number @param {number} out @param {Uint8Array} data */
  putRoot(number, out, data) {
    this.put(this.of(number).node === this.disk.root && number === 3 ? out : refuse("BADF"), data);
  }
  /** @param {number} number */
  close(number) {
    this.disk.drop(this.of(number).node, -1);
    this.files.delete(number);
  }
  /** What resolves a path that was given. @param {number} number @param {number} path @param {number} length */
  path(number, path, length) {
    const { node } = this.of(number, FOLDER);
    this.check(path, length);
    const said = this.read(path, Math.min(length >>> 0, LONGEST_PATH + 1));
    return () => this.disk.place(node, said);
  }
  /** @param {Opened} one @param {bigint} from @param {number} vectors @param {number} count @param {number} out */
  into({ node, reads }, from, vectors, count, out) {
    this.check(out, 4);
    const places = this.vectors(vectors, count), start = Number(from);
    if (node.kind === FOLDER) refuse("ISDIR");
    if (!reads) refuse("BADF");
    let moved = 0;
    for (const [place, length] of places) {
      const part = node.data.slice(Math.min(start + moved, node.size), Math.min(start + moved + length, node.size));
      this.put(place, part);
      moved += part.length;
    }
    this.putNumber(out, 4, moved);
    return BigInt(moved);
  }
  /** @param {Opened} one @param {bigint} from @param {number} vectors @param {number} count @param {number} out */
  from({ node, writes }, from, vectors, count, out) {
    this.check(out, 4);
    const data = concat(this.vectors(vectors, count).map(([place, length]) => this.read(place, length)));
    if (!writes) refuse("BADF");
    if (node.sink) node.sink(data);
    else this.disk.write(node, Number(from), data);
    this.putNumber(out, 4, data.length);
    return BigInt(data.length);
  }
}

/** @param {bigint} a @param {bigint} b */
const least = (a, b) => (a < b ? a : b);
/** @param {bigint} value */
const unsigned = (value) => BigInt.asUintN(64, value);

/** The functions, each with the guest that calls it. @type {Record<string, (guest: WasiGuest, ...given: any[]) => void>} */
const WASI = {
  args_get: (guest, pointers, buffer) => guest.putTexts(guest.args, pointers, buffer),
  args_sizes_get: (guest, count, size) => guest.putSizes(guest.args, count, size),
  environ_get: (guest, pointers, buffer) => guest.putTexts(guest.env, pointers, buffer),
  environ_sizes_get: (guest, count, size) => guest.putSizes(guest.env, count, size),
  clock_res_get: (guest, clock, out) => (clock >>> 0 < CLOCKS ? guest.putNumber(out, 8, 1000) : refuse("INVAL")),
  clock_time_get: (guest, clock, _, out) => (clock >>> 0 < CLOCKS ? guest.putNumber(out, 8, guest.time) : refuse("INVAL")),
  fd_advise: (guest, number) => void guest.of(number, FILE),
  fd_sync: (guest, number) => void guest.of(number),
  fd_datasync: (guest, number) => void guest.of(number),
  fd_close: (guest, number) => guest.close(number),
  fd_renumber(guest, number, to) {
    const one = guest.of(number);
    if (one === guest.of(to)) return;
    guest.close(to);
    guest.files.set(to, one).delete(number);
  },
  fd_fdstat_get(guest, number, out) {
    const { node, reads, writes, appends } = guest.of(number);
    const rights = node.kind === STREAM ? (reads ? READS : 0n) | (writes ? WRITES : 0n) : ALL_RIGHTS;
    guest.put(out, fieldsOf([[2, node.kind], [6, appends ? 1 : 0], [8, rights], [8, ALL_RIGHTS]]));
  },
  fd_fdstat_set_flags: (guest, number, flags) => void (guest.of(number).appends = (flags & 1) !== 0),
  fd_filestat_get: (guest, number, out) => guest.putStat(guest.of(number).node, out),
  fd_filestat_set_size(guest, number, size) {
    const { node, writes } = guest.of(number, FILE);
    guest.disk.resize(writes ? node : refuse("INVAL"), Number(unsigned(size)));
  },
  fd_prestat_get: (guest, number, out) => guest.putRoot(number, out, fieldsOf([[4, 0], [4, 1]])),
  fd_prestat_dir_name(guest, number, out, length) {
    guest.putRoot(number, out, UTF8.encode(length ? "/" : ""));
    if (!length) refuse("NAMETOOLONG");
  },
  fd_read(guest, number, vectors, count, out) {
    const one = guest.of(number);
    one.at += guest.into(one, one.at, vectors, count, out);
  },
  fd_pread: (guest, number, vectors, count, offset, out) => void guest.into(guest.of(number, FILE), unsigned(offset), vectors, count, out),
  fd_write(guest, number, vectors, count, out) {
    const one = guest.of(number);
    if (one.appends && one.node.kind === FILE) one.at = BigInt(one.node.size);
    one.at += guest.from(one, one.at, vectors, count, out);
  },
  fd_pwrite: (guest, number, vectors, count, offset, out) => void guest.from(guest.of(number, FILE), unsigned(offset), vectors, count, out),
  fd_seek(guest, number, offset, whence, out) {
    const one = guest.of(number, FILE), place = offset + ([0n, one.at, BigInt(one.node.size)][whence >>> 0] ?? refuse("INVAL"));
    if (place < 0n || place > LAST) refuse("INVAL");
    guest.putNumber(out, 8, place);
    one.at = place;
  },
  fd_tell: (guest, number, out) => guest.putNumber(out, 8, guest.of(number, FILE).at),
  fd_readdir(guest, number, buffer, length, cookie, out) {
    const one = guest.of(number, FOLDER), { node } = one, after = unsigned(cookie);
    guest.check(buffer, length);
    if (!after || !one.listing.length) one.listing = [[".", node], ["..", node.above ?? node], ...node.entries];
    const entries = one.listing.slice(Number(after)).flatMap(([name, inner], n) => {
      const encoded = UTF8.encode(name);
      return [fieldsOf([[8, after + BigInt(n + 1)], [8, inner.number], [4, encoded.length], [4, inner.kind]]), encoded];
    });
    const data = concat(entries).subarray(0, length >>> 0);
    guest.putNumber(out, 4, data.length);
    guest.put(buffer, data);
  },
  path_create_directory: (guest, number, path, length) => guest.disk.makeFolder(guest.path(number, path, length)()),
  path_filestat_get: (guest, number, _, path, length, out) => guest.putStat(guest.disk.taken(guest.path(number, path, length)()), out),
  path_open(guest, number, _, path, length, how, rights, _inherited, flags, out) {
    const place = guest.path(number, path, length);
    guest.check(out, 4);
    const free = [...Array(MOST_OPEN).keys()].find((n) => !guest.files.has(n)) ?? refuse("MFILE");
    const writes = (rights & WRITES) !== 0n, reads = (rights & READS) !== 0n;
    const node = guest.disk.open(place(), how, writes), isFile = node.kind === FILE;
    guest.disk.drop(node, 1);
    guest.files.set(free, openOf(node, { reads: reads || !isFile, writes: writes && isFile, appends: (flags & 1) !== 0 }));
    guest.putNumber(out, 4, free);
  },
  path_readlink(guest, number, path, length) {
    guest.disk.taken(guest.path(number, path, length)());
    refuse("INVAL");
  },
  path_remove_directory: (guest, number, path, length) => guest.disk.remove(guest.path(number, path, length)(), FOLDER),
  path_rename(guest, number, path, length, to, other, otherLength) {
    const source = guest.path(number, path, length), target = guest.path(to, other, otherLength);
    guest.disk.rename(source(), target());
  },
  path_unlink_file: (guest, number, path, length) => guest.disk.remove(guest.path(number, path, length)(), FILE),
  poll_oneoff(guest, asked, events, count, out) {
    if (!(count > 0 && count <= MOST_VECTORS)) refuse("INVAL");
    guest.check(asked, count * 48);
    guest.check(events, count * 32);
    guest.check(out, 4);
    const now = guest.time, view = new DataView(guest.read(asked, count * 48).buffer);
    const happened = /** @type {Fields[]} */ ([]), timers = /** @type {[bigint, bigint][]} */ ([]);
    for (let at = 0; at < count * 48; at += 48) {
      const user = view.getBigUint64(at, true), tag = view.getUint8(at + 8), what = view.getUint32(at + 16, true);
      if (tag === 1 || tag === 2) {
        const one = guest.files.get(what), size = one && tag === 1 ? BigInt(one.node.size) : 0n, at = one?.at ?? 0n;
        happened.push([[8, user], [2, one ? 0 : ERRNO.BADF], [6, tag], [8, size - least(at, size)], [8, 0]]);
      } else if (tag !== 0 || what >= CLOCKS) refuse("INVAL");
      else timers.push([least(view.getBigUint64(at + 24, true) + (view.getUint16(at + 40, true) & 1 ? 0n : now), LAST), user]);
    }
    const first = timers.reduce((first, [due]) => least(first, due), LAST);
    if (!happened.length && first > now) guest.slept += first - now;
    for (const [due, user] of timers) if (due <= guest.time) happened.push([[8, user], [2, 0], [6, 0], [8, 0], [8, 0]]);
    guest.putNumber(out, 4, happened.length);
    guest.put(events, fieldsOf(happened.flat()));
  },
  proc_exit(_, code) {
    throw new Stop({ kind: "returned", code, message: code ? `the program ended with exit code ${code >>> 0}` : "" });
  },
  random_get: (guest, pointer, length) => guest.random(pointer, length),
  sched_yield() {},
};
const UNSUPPORTED = "fd_allocate fd_fdstat_set_rights fd_filestat_set_times path_filestat_set_times path_link path_symlink proc_raise sock_accept sock_recv sock_send sock_shutdown";
for (const name of UNSUPPORTED.split(" ")) WASI[name] = () => refuse("NOTSUP");
