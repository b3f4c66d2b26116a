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
  /** @param {number} errno */
  constructor(errno) {
    super();
    this.errno = errno;
  }
}
/** @param {keyof typeof ERRNO} name @returns {never} */
function refuse(name) {
  throw new WasiError(ERRNO[name]);
}

/**
 * A file, a folder or a stream. `data` has room for more than `size` bytes; `sink` takes what is
 * written into a stream; `above` is null of the root and of what was removed.
 * @typedef {{ kind: number, number: bigint, at: bigint, readOnly: boolean, linked: boolean, opened: number, data: Uint8Array, size: number,
 *   sink: ((data: Uint8Array) => void) | null, above: WasiNode | null, entries: Map<string, WasiNode> }} WasiNode
 * @typedef {{ node: WasiNode, reads: boolean, writes: boolean, appends: boolean, at: bigint, listing: [string, bigint, number][] }} Opened
 * @typedef {{ folder: WasiNode, name: string, node: WasiNode | undefined, isFolder: boolean }} Place
 */

/** @param {number} kind @param {Partial<WasiNode>} more @returns {WasiNode} */
const nodeOf = (kind, more) => ({
  ...{ kind, number: 0n, at: 0n, readOnly: false, linked: true, opened: 0, data: new Uint8Array(), size: 0, sink: null, above: null },
  ...{ entries: new Map(), ...more },
});
/** @param {WasiNode} node @param {Partial<Opened>} [more] @returns {Opened} */
const openOf = (node, more) => ({ node, reads: true, writes: false, appends: false, at: 0n, listing: [], ...more });

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
      const folders = path.split("/"), name = folders.pop() ?? "";
      let here = this.root;
      for (const step of folders) {
        let inner = here.entries.get(step);
        if (inner?.kind !== FOLDER) inner = nodeOf(FOLDER, { number: ++this.count, at: now(), above: here, readOnly: true });
        here.entries.set(step, inner);
        here = inner;
      }
      here.entries.set(name, nodeOf(FILE, { number: ++this.count, at: now(), data, size: data.length, readOnly: true }));
    }
    if (!this.root.entries.has("tmp")) this.makeFolder(this.place(this.root, UTF8.encode("tmp")));
  }

  /** Resolve a path, which cannot leave *base*.
   * @param {WasiNode} base @param {Uint8Array} path @returns {Place} */
  place(base, path) {
    if (path.length > LONGEST_PATH) refuse("NAMETOOLONG");
    let text = "";
    try {
      text = STRICT.decode(path);
    } catch {
      refuse("ILSEQ");
    }
    if (!text) refuse("NOENT");
    if (text.includes("\0")) refuse("INVAL");
    if (text.startsWith("/")) refuse("NOTCAPABLE");
    const steps = text.split("/");
    if (steps.some((step) => UTF8.encode(step).length > LONGEST_NAME)) refuse("NAMETOOLONG");
    /** @type {[WasiNode, string][]} */
    const walked = [];
    /** @type {WasiNode | undefined} */
    let here = base;
    for (const step of steps) {
      if (!step || step === ".") continue;
      if (!here) refuse("NOENT");
      if (here.kind !== FOLDER) refuse("NOTDIR");
      if (step !== "..") {
        walked.push([here, step]);
        here = here.entries.get(step);
      } else [here] = walked.pop() ?? refuse("NOTCAPABLE");
    }
    const [folder, name] = walked.at(-1) ?? [base, ""];
    return { folder, name, node: here, isFolder: ["", ".", ".."].includes(steps.at(-1) ?? "") };
  }
  /** @param {Place} place */
  taken({ node, isFolder }) {
    if (!node) return refuse("NOENT");
    return isFolder && node.kind !== FOLDER ? refuse("NOTDIR") : node;
  }
  /** @param {Place} place */
  changeable({ name, folder, node }) {
    if (!name) refuse("INVAL");
    if (folder.readOnly || node?.readOnly) refuse("ROFS");
    if (!folder.linked) refuse("NOENT");
  }
  /** @param {number} kind @param {WasiNode | null} above */
  made(kind, above) {
    if (!this.left) refuse("NOSPC");
    this.left -= 1;
    return nodeOf(kind, { number: ++this.count, at: this.now(), above });
  }

  /** @param {Place} place @param {number} how @param {boolean} writes */
  open(place, how, writes) {
    const [create, folder, exclusive, truncate] = [1, 2, 4, 8].map((bit) => (how & bit) !== 0);
    if (!place.node && create) {
      if (folder || place.isFolder) refuse("INVAL");
      this.changeable(place);
      const made = this.made(FILE, null);
      place.folder.entries.set(place.name, made);
      return made;
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
    place.folder.entries.set(place.name, this.made(FOLDER, place.folder));
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
    this.drop(node);
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
    if (target.node) {
      if (target.node.kind !== node.kind) refuse(node.kind === FILE ? "ISDIR" : "NOTDIR");
      this.unlink(target, target.node);
    }
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
    if (node.size + more <= node.data.length) return;
    const data = new Uint8Array(2 * (node.size + more));
    data.set(node.data.subarray(0, node.size));
    node.data = data;
  }
  /** @param {WasiNode} node @param {number} [opened] descriptors more or less */
  drop(node, opened = 0) {
    if (node.kind !== FILE) return;
    node.opened += opened;
    if (node.linked || node.opened || node.readOnly) return;
    this.room += node.size;
    node.data = new Uint8Array();
    node.size = 0;
  }
}

class WasiGuest extends Guest {
  slept = 0n;
  left = this.limits.wasi_calls;
  /** @type {Uint8Array[]} */
  printed = [];
  /** @type {number[]} */
  lastLine = [];
  /** @type {Map<number, Opened>} */
  files = new Map();

  /** @type {Uint8Array[]} */
  args = [];
  /** @type {Uint8Array[]} */
  env = [];
  /** @type {Tree | null} Since the first call. */
  tree = null;

  begin() {
    const { args = [], env = {}, files = {} } = this.started.command ?? {}, { input } = this.started;
    this.args = args.map((/** @type {string} */ one) => UTF8.encode(`${one}\0`));
    this.env = entriesOf(env).map(([name, value]) => UTF8.encode(`${name}=${value}\0`));
    const content = entriesOf(files).map(([path, digest]) => /** @type {[string, Uint8Array]} */ ([path, this.blob(digest)]));
    this.tree = new Tree(content, this.limits.scratch, () => this.time);
    const data = UTF8.encode(typeof input === "string" ? input : input === null ? "" : jsonOf(input));
    const sink = (/** @type {(data: Uint8Array) => void} */ method) =>
      openOf(nodeOf(STREAM, { sink: method.bind(this) }), { reads: false, writes: true });
    [openOf(nodeOf(STREAM, { data, size: data.length })), sink(this.print), sink(this.tell), openOf(this.tree.root)].forEach((one, n) => this.files.set(n, one));
  }
  chargeWasi() {
    if (!this.tree) this.begin();
    if (--this.left < 0) this.over("wasi_calls", "more calls of WASI than the limit allows");
  }
  imports() {
    const answers = Object.entries(WASI).map(([name, method]) => {
      /** @param {any[]} given */
      const answer = (...given) => {
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

  /** What was printed is the output, and a last line is logged. @param {End} end @returns {End} */
  finished(end) {
    if (this.lastLine.length) this.tell(UTF8.encode("\n"));
    if (end.kind !== "returned" || this.output || !this.printed.length) return end;
    const data = concat(this.printed);
    let output;
    try {
      output = pack(fromJSON(STRICT.decode(data)));
    } catch {
      output = pack(LENIENT.decode(data));
    }
    const { length } = output, most = this.limits.output;
    if (length > most) return { kind: "limit", limit: "output", message: `${length} bytes, of ${most} allowed` };
    return this.keep(output, end);
  }

  get time() {
    const time = BigInt(this.now) * 1000n + this.slept;
    return time < LAST ? time : LAST;
  }
  /** @param {Uint8Array} data */
  print(data) {
    const size = this.printed.reduce((sum, one) => sum + one.length, data.length);
    if (size > this.limits.output) this.over("output", `${size} bytes, of ${this.limits.output} allowed`);
    if (data.length) this.printed.push(data);
  }
  /** @param {Uint8Array} data */
  tell(data) {
    const most = this.mostOfLine;
    for (let start = 0; this.sent <= this.limits.log; ) {
      const end = data.indexOf(10, start), rest = data.subarray(start, end < 0 ? undefined : end);
      for (const byte of rest.subarray(0, most - this.lastLine.length)) this.lastLine.push(byte);
      if (end < 0) return;
      const line = Uint8Array.from(this.lastLine);
      this.lastLine = [];
      this.say(2, line);
      start = end + 1;
    }
  }

  // -- memory

  /** @param {number} pointer @param {number} size @param {number | bigint} value */
  putNumber(pointer, size, value) {
    const data = new DataView(new ArrayBuffer(8));
    data.setBigUint64(0, BigInt.asUintN(64, BigInt(value)), true);
    this.put(pointer, new Uint8Array(data.buffer, 0, size));
  }
  /** Write numbers, one behind the other, each of so many bytes. @param {number} pointer @param {[number, number | bigint][]} fields */
  putFields(pointer, fields) {
    const data = new DataView(new ArrayBuffer(fields.reduce((sum, [size]) => sum + size, 8)));
    let at = 0;
    for (const [size, value] of fields) {
      data.setBigUint64(at, BigInt.asUintN(8 * Math.min(size, 8), BigInt(value)), true);
      at += size;
    }
    this.put(pointer, new Uint8Array(data.buffer, 0, at));
  }
  /** @param {Uint8Array[]} texts @param {number} pointers @param {number} buffer */
  putTexts(texts, pointers, buffer) {
    for (const text of texts) {
      this.putNumber(pointers, 4, buffer >>> 0);
      this.put(buffer, text);
      pointers += 4;
      buffer += text.length;
    }
  }
  /** @param {Uint8Array[]} texts @param {number} count @param {number} size */
  putSizes(texts, count, size) {
    this.putNumber(count, 4, texts.length);
    this.putNumber(size, 4, texts.reduce((sum, one) => sum + one.length, 0));
  }
  /** @param {number} vectors @param {number} count @returns {Generator<[number, number]>} */
  *vectors(vectors, count) {
    if (count >>> 0 > MOST_VECTORS) refuse("INVAL");
    const view = new DataView(this.read(vectors, count * 8).buffer);
    for (let n = 0, left = MOST_MOVED; n < count; n++) {
      const place = view.getUint32(n * 8, true), length = view.getUint32(n * 8 + 4, true), moved = Math.min(length, left);
      this.check(place, length);
      yield [place, moved];
      left -= moved;
    }
  }

  // -- files

  /** @param {number} number */
  of(number) {
    return this.files.get(number >>> 0) ?? refuse("BADF");
  }
  /** @param {number} number */
  file(number) {
    const one = this.of(number);
    return one.node.kind === FILE ? one : refuse(one.node.kind === FOLDER ? "ISDIR" : "SPIPE");
  }
  get disk() {
    return this.tree ?? this.trap("it has no files");
  }
  /** @param {number} number */
  folder(number) {
    const one = this.of(number);
    return one.node.kind === FOLDER ? one : refuse("NOTDIR");
  }
  /** @param {number} number */
  isRoot(number) {
    if (number !== 3 || this.of(number).node !== this.disk.root) refuse("BADF");
  }
  /** @param {number} number @param {number} path @param {number} length */
  path(number, path, length) {
    const { node } = this.folder(number);
    this.check(path, length);
    return { base: node, path: this.read(path, Math.min(length >>> 0, LONGEST_PATH + 1)) };
  }
  /** @param {number} number @param {number} path @param {number} length */
  place(number, path, length) {
    const { base, path: said } = this.path(number, path, length);
    return this.disk.place(base, said);
  }
  /** @param {WasiNode} node @param {number} out */
  filestat(node, out) {
    const times = /** @type {[number, bigint][]} */ ([[8, node.at], [8, node.at], [8, node.at]]);
    this.putFields(out, [[8, 0], [8, node.number], [8, node.kind], [8, 1], [8, node.size], ...times]);
  }
  /** @param {Opened} one @param {bigint} from @param {number} vectors @param {number} count @param {number} out */
  into(one, from, vectors, count, out) {
    this.check(out, 4);
    const places = [...this.vectors(vectors, count)];
    if (one.node.kind === FOLDER) refuse("ISDIR");
    if (!one.reads) refuse("BADF");
    const start = Number(from), { data, size } = one.node;
    let moved = 0;
    for (const [place, length] of places) {
      const part = data.slice(Math.min(start + moved, size), Math.min(start + moved + length, size));
      this.put(place, part);
      moved += part.length;
    }
    this.putNumber(out, 4, moved);
    return BigInt(moved);
  }
  /** @param {Opened} one @param {bigint} from @param {number} vectors @param {number} count @param {number} out */
  from(one, from, vectors, count, out) {
    this.check(out, 4);
    const data = concat([...this.vectors(vectors, count)].map(([place, length]) => this.read(place, length)));
    if (!one.writes) refuse("BADF");
    if (one.node.sink) one.node.sink(data);
    else this.disk.write(one.node, Number(from), data);
    this.putNumber(out, 4, data.length);
    return BigInt(data.length);
  }
}

const unsupported = () => refuse("NOTSUP");

/** The functions, each with the guest that calls it.
 * @type {Record<string, (guest: WasiGuest, ...given: any[]) => void>} */
const WASI = {
  args_get: (guest, pointers, buffer) => guest.putTexts(guest.args, pointers, buffer),
  args_sizes_get: (guest, count, size) => guest.putSizes(guest.args, count, size),
  environ_get: (guest, pointers, buffer) => guest.putTexts(guest.env, pointers, buffer),
  environ_sizes_get: (guest, count, size) => guest.putSizes(guest.env, count, size),
  clock_res_get(guest, clock, out) {
    if (clock >>> 0 >= CLOCKS) refuse("INVAL");
    guest.putNumber(out, 8, 1000);
  },
  clock_time_get(guest, clock, _precision, out) {
    if (clock >>> 0 >= CLOCKS) refuse("INVAL");
    guest.putNumber(out, 8, guest.time);
  },
  fd_advise: (guest, number) => void guest.file(number),
  fd_sync: (guest, number) => void guest.of(number),
  fd_datasync: (guest, number) => void guest.of(number),
  fd_close(guest, number) {
    guest.disk.drop(guest.of(number).node, -1);
    guest.files.delete(number);
  },
  fd_renumber(guest, number, to) {
    const one = guest.of(number), other = guest.of(to);
    if (one === other) return;
    guest.disk.drop(other.node, -1);
    guest.files.set(to, one);
    guest.files.delete(number);
  },
  fd_fdstat_get(guest, number, out) {
    const { node, reads, writes, appends } = guest.of(number);
    const rights = node.kind === STREAM ? (reads ? READS : 0n) | (writes ? WRITES : 0n) : ALL_RIGHTS;
    guest.putFields(out, [[2, node.kind], [6, appends ? 1 : 0], [8, rights], [8, ALL_RIGHTS]]);
  },
  fd_fdstat_set_flags(guest, number, flags) {
    guest.of(number).appends = (flags & 1) !== 0;
  },
  fd_filestat_get: (guest, number, out) => guest.filestat(guest.of(number).node, out),
  fd_filestat_set_size(guest, number, size) {
    const one = guest.file(number);
    if (!one.writes) refuse("INVAL");
    guest.disk.resize(one.node, Number(BigInt.asUintN(64, size)));
  },
  fd_prestat_get(guest, number, out) {
    guest.isRoot(number);
    guest.putFields(out, [[4, 0], [4, 1]]);
  },
  fd_prestat_dir_name(guest, number, out, length) {
    guest.isRoot(number);
    if (length >>> 0 < 1) refuse("NAMETOOLONG");
    guest.put(out, UTF8.encode("/"));
  },
  fd_read(guest, number, vectors, count, out) {
    const one = guest.of(number);
    one.at += guest.into(one, one.at, vectors, count, out);
  },
  fd_pread: (guest, number, vectors, count, offset, out) => void guest.into(guest.file(number), BigInt.asUintN(64, offset), vectors, count, out),
  fd_write(guest, number, vectors, count, out) {
    const one = guest.of(number);
    if (one.appends && one.node.kind === FILE) one.at = BigInt(one.node.size);
    one.at += guest.from(one, one.at, vectors, count, out);
  },
  fd_pwrite: (guest, number, vectors, count, offset, out) => void guest.from(guest.file(number), BigInt.asUintN(64, offset), vectors, count, out),
  fd_seek(guest, number, offset, whence, out) {
    const one = guest.file(number);
    const from = [0n, one.at, BigInt(one.node.size)][whence >>> 0] ?? refuse("INVAL");
    const place = offset + from;
    if (place < 0n || place > LAST) refuse("INVAL");
    guest.putNumber(out, 8, place);
    one.at = place;
  },
  fd_tell: (guest, number, out) => guest.putNumber(out, 8, guest.file(number).at),
  fd_readdir(guest, number, buffer, length, cookie, out) {
    const one = guest.folder(number), { node } = one, size = length >>> 0, after = BigInt.asUintN(64, cookie);
    guest.check(buffer, length);
    if (!after || !one.listing.length) {
      const inner = [...node.entries].map(([name, inside]) => /** @type {[string, bigint, number]} */ ([name, inside.number, inside.kind]));
      one.listing = [[".", node.number, FOLDER], ["..", (node.above ?? node).number, FOLDER], ...inner];
    }
    const entries = one.listing.slice(Number(after)).map(([name, inode, kind], n) => {
      const encoded = UTF8.encode(name), head = new DataView(new ArrayBuffer(24));
      head.setBigUint64(0, after + BigInt(n) + 1n, true);
      head.setBigUint64(8, inode, true);
      head.setUint32(16, encoded.length, true);
      head.setUint8(20, kind);
      return [new Uint8Array(head.buffer), encoded];
    });
    const data = concat(entries.flat()).subarray(0, size);
    guest.putNumber(out, 4, data.length);
    guest.put(buffer, data);
  },
  path_create_directory: (guest, number, path, length) => guest.disk.makeFolder(guest.place(number, path, length)),
  path_filestat_get: (guest, number, _flags, path, length, out) => guest.filestat(guest.disk.taken(guest.place(number, path, length)), out),
  path_open(guest, number, _lookup, path, length, how, rights, _inherited, flags, out) {
    const said = guest.path(number, path, length);
    guest.check(out, 4);
    const free = [...Array(MOST_OPEN).keys()].find((n) => !guest.files.has(n)) ?? refuse("MFILE");
    const writes = (rights & WRITES) !== 0n, reads = (rights & READS) !== 0n;
    const node = guest.disk.open(guest.disk.place(said.base, said.path), how, writes), isFile = node.kind === FILE;
    guest.disk.drop(node, 1);
    guest.files.set(free, openOf(node, { reads: reads || !isFile, writes: writes && isFile, appends: (flags & 1) !== 0 }));
    guest.putNumber(out, 4, free);
  },
  path_readlink(guest, number, path, length) {
    guest.disk.taken(guest.place(number, path, length));
    refuse("INVAL");
  },
  path_remove_directory: (guest, number, path, length) => guest.disk.remove(guest.place(number, path, length), FOLDER),
  path_rename(guest, number, path, length, to, other, otherLength) {
    const source = guest.path(number, path, length), target = guest.path(to, other, otherLength);
    guest.disk.rename(guest.disk.place(source.base, source.path), guest.disk.place(target.base, target.path));
  },
  path_unlink_file: (guest, number, path, length) => guest.disk.remove(guest.place(number, path, length), FILE),
  poll_oneoff(guest, asked, events, count, out) {
    if (!(count > 0 && count <= MOST_VECTORS)) refuse("INVAL");
    guest.check(asked, count * 48);
    guest.check(events, count * 32);
    guest.check(out, 4);
    const now = guest.time, view = new DataView(guest.read(asked, count * 48).buffer);
    /** @type {[number, number | bigint][][]} */
    const happened = [];
    /** @type {[bigint, bigint][]} */
    const timers = [];
    for (let at = 0; at < count * 48; at += 48) {
      const user = view.getBigUint64(at, true), tag = view.getUint8(at + 8), what = view.getUint32(at + 16, true);
      if (tag === 1 || tag === 2) {
        const one = guest.files.get(what), left = one && tag === 1 && one.node.kind !== FOLDER ? BigInt(one.node.size) - one.at : 0n;
        happened.push([[8, user], [2, one ? 0 : ERRNO.BADF], [6, tag], [8, left > 0n ? left : 0n], [8, 0]]);
      } else if (tag !== 0 || what >= CLOCKS) refuse("INVAL");
      else {
        const due = view.getBigUint64(at + 24, true) + (view.getUint16(at + 40, true) & 1 ? 0n : now);
        timers.push([due < LAST ? due : LAST, user]);
      }
    }
    const first = timers.reduce((least, [due]) => (due < least ? due : least), LAST);
    if (!happened.length && first > now) guest.slept += first - now;
    for (const [due, user] of timers) if (due <= guest.time) happened.push([[8, user], [2, 0], [6, 0], [8, 0], [8, 0]]);
    guest.putNumber(out, 4, happened.length);
    guest.putFields(events, happened.flat());
  },
  proc_exit(_guest, code) {
    throw new Stop({ kind: "returned", code, message: code ? `the program ended with exit code ${code >>> 0}` : "" });
  },
  random_get: (guest, pointer, length) => guest.random(pointer, length),
  sched_yield() {},
  ...Object.fromEntries(["fd_allocate", "fd_fdstat_set_rights", "fd_filestat_set_times", "path_filestat_set_times"].map((name) => [name, unsupported])),
  ...Object.fromEntries(["path_link", "path_symlink", "proc_raise", "sock_accept", "sock_recv", "sock_send", "sock_shutdown"].map((name) => [name, unsupported])),
};
