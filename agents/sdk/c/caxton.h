/*
 * caxton.h: write an agent for caxton_host in C.
 *
 *     #include "caxton.h"
 *
 *     CX_RUN {
 *       CX_BUFFER(params, 256);
 *       cx_map(&params, 1);
 *       cx_str(&params, "location");
 *       cx_str(&params, "Seattle");
 *       cx_reply reply = cx_call("weather", &params);
 *
 *       CX_BUFFER(result, 1024);
 *       cx_map(&result, 1);
 *       cx_str(&result, "summary");
 *       cx_text_view(&result, cx_text_of(cx_find(reply.value, "message")));
 *       cx_output(&result);
 *       return 0;
 *     }
 *
 * Freestanding: no libc, no WASI, one source file per agent.
 * `caxton agent build` compiles it. By hand:
 *
 *     python -m ziglang cc --target=wasm32-freestanding -Os -nostdlib \
 *       -Wl,--no-entry -Wl,--strip-all -I sdk/c -o agent.wasm agent.c
 *
 * A cx_writer builds a value, a cx_reply is an answer of the host, and a cx_value
 * is a view of a value in it. No function reads or writes beyond the buffer that
 * it is given. A value that is missing or of another type reads as "", 0 or
 * false. A reply is valid until the next call that returns one.
 */
#ifndef CAXTON_H
#define CAXTON_H

#include <stdbool.h>
#include <stdint.h>

#define CX_FN static __attribute__((unused))
#define CX_IMPORT(name) \
  extern __attribute__((import_module("caxton"), import_name(#name)))

/* ---- The host's functions. Agents use the wrappers that follow them. ------- */

CX_IMPORT(mcp_call)
uint64_t cx_host_mcp_call(const void *name, uint32_t name_len,
                          const void *params, uint32_t params_len, void *out,
                          uint32_t out_cap);
CX_IMPORT(mcp_call_many)
uint64_t cx_host_mcp_call_many(const void *batch, uint32_t batch_len, void *out,
                               uint32_t out_cap);
CX_IMPORT(take_reply) uint32_t cx_host_take_reply(void *out, uint32_t cap);
CX_IMPORT(tools) uint64_t cx_host_tools(void *out, uint32_t cap);
CX_IMPORT(context)
uint64_t cx_host_context(const void *key, uint32_t key_len, void *out,
                         uint32_t cap);
CX_IMPORT(input) uint64_t cx_host_input(void *out, uint32_t cap);
CX_IMPORT(output) void cx_host_output(const void *bytes, uint32_t size);
CX_IMPORT(now) int64_t cx_host_now(void);
CX_IMPORT(random) void cx_host_random(void *out, uint32_t size);
CX_IMPORT(log)
void cx_host_log(uint32_t level, const void *text, uint32_t size);

/* Defines the agent's entry point: CX_RUN { ...; return 0; }. 0 is success. */
#define CX_RUN __attribute__((export_name("run"))) int32_t run(void)

/* ---- Text -------------------------------------------------------------- */

typedef struct {
  const char *at; /* not terminated by a zero byte */
  uint32_t size;
} cx_text;

CX_FN cx_text cx_c(const char *text) {
  cx_text view = {text, 0};
  while (text[view.size]) view.size++;
  return view;
}

CX_FN bool cx_equal(cx_text one, cx_text other) {
  if (one.size != other.size) return false;
  for (uint32_t i = 0; i < one.size; i++)
    if (one.at[i] != other.at[i]) return false;
  return true;
}

CX_FN bool cx_same(cx_text text, const char *other) {
  return cx_equal(text, cx_c(other));
}

/* ---- Writing a value ---------------------------------------------------- */

typedef struct {
  uint8_t *bytes;
  uint32_t cap, size;
  bool full; /* something did not fit; the value is not sent */
} cx_writer;

/* Declares a writer for up to `room` bytes of msgpack. */
#define CX_BUFFER(name, room)        \
  static uint8_t name##_bytes[room]; \
  cx_writer name = {name##_bytes, room, 0, false}

CX_FN void cx_raw(cx_writer *w, const void *bytes, uint32_t size) {
  if (w->full || size > w->cap - w->size) {
    w->full = true;
    return;
  }
  for (uint32_t i = 0; i < size; i++)
    w->bytes[w->size + i] = ((const uint8_t *)bytes)[i];
  w->size += size;
}

/* Writes a tag and the low `width` bytes of a number, big-endian. */
CX_FN void cx_tagged(cx_writer *w, uint8_t tag, uint64_t number, int width) {
  uint8_t bytes[9] = {tag};
  for (int i = width; i > 0; i--, number >>= 8) bytes[i] = (uint8_t)number;
  cx_raw(w, bytes, (uint32_t)width + 1);
}

CX_FN void cx_nil(cx_writer *w) { cx_tagged(w, 0xc0, 0, 0); }

CX_FN void cx_bool(cx_writer *w, bool value) {
  cx_tagged(w, value ? 0xc3 : 0xc2, 0, 0);
}

CX_FN void cx_uint(cx_writer *w, uint64_t value) {
  if (value < 0x80) cx_tagged(w, (uint8_t)value, 0, 0);
  else if (value <= UINT8_MAX) cx_tagged(w, 0xcc, value, 1);
  else if (value <= UINT16_MAX) cx_tagged(w, 0xcd, value, 2);
  else if (value <= UINT32_MAX) cx_tagged(w, 0xce, value, 4);
  else cx_tagged(w, 0xcf, value, 8);
}

CX_FN void cx_int(cx_writer *w, int64_t value) {
  uint64_t bits = (uint64_t)value;
  if (value >= 0) cx_uint(w, bits);
  else if (value >= -32) cx_tagged(w, (uint8_t)bits, 0, 0);
  else if (value >= INT8_MIN) cx_tagged(w, 0xd0, bits, 1);
  else if (value >= INT16_MIN) cx_tagged(w, 0xd1, bits, 2);
  else if (value >= INT32_MIN) cx_tagged(w, 0xd2, bits, 4);
  else cx_tagged(w, 0xd3, bits, 8);
}

/* The host rejects a call that contains NaN or an infinity. */
CX_FN void cx_double(cx_writer *w, double value) {
  union {
    double number;
    uint64_t bits;
  } as = {value};
  cx_tagged(w, 0xcb, as.bits, 8);
}

CX_FN void cx_text_view(cx_writer *w, cx_text text) {
  if (text.size < 32) cx_tagged(w, (uint8_t)(0xa0 | text.size), 0, 0);
  else if (text.size <= UINT8_MAX) cx_tagged(w, 0xd9, text.size, 1);
  else if (text.size <= UINT16_MAX) cx_tagged(w, 0xda, text.size, 2);
  else cx_tagged(w, 0xdb, text.size, 4);
  cx_raw(w, text.at, text.size);
}

CX_FN void cx_str(cx_writer *w, const char *text) {
  cx_text_view(w, cx_c(text));
}

/* Starts an array; write `count` values next. */
CX_FN void cx_array(cx_writer *w, uint32_t count) {
  if (count < 16) cx_tagged(w, (uint8_t)(0x90 | count), 0, 0);
  else if (count <= UINT16_MAX) cx_tagged(w, 0xdc, count, 2);
  else cx_tagged(w, 0xdd, count, 4);
}

/* Starts a map; write `count` pairs next: a key (cx_str) and a value each. */
CX_FN void cx_map(cx_writer *w, uint32_t count) {
  if (count < 16) cx_tagged(w, (uint8_t)(0x80 | count), 0, 0);
  else if (count <= UINT16_MAX) cx_tagged(w, 0xde, count, 2);
  else cx_tagged(w, 0xdf, count, 4);
}

/* ---- Reading a value ----------------------------------------------------- */

typedef struct {
  const uint8_t *at;
  uint32_t size; /* 0: there is no such value */
} cx_value;

typedef enum {
  CX_NOTHING,
  CX_NIL,
  CX_BOOL,
  CX_INT,
  CX_DOUBLE,
  CX_TEXT,
  CX_ARRAY,
  CX_MAP
} cx_kind;

/* The head of a value: its type and the amount of data that follows. */
typedef struct {
  cx_kind kind;
  uint32_t size;  /* of the head itself */
  uint32_t count; /* bytes of a text, values of an array, pairs of a map */
  uint64_t bits;  /* of a number, sign-extended */
} cx_head;

/* Number of bytes after a tag of at least 0xc0, or -1 for types outside JSON. */
CX_FN int cx_width(uint8_t tag) {
  static const int8_t widths[32] = {0, -1, 0,  0,  -1, -1, -1, -1, -1, -1, 4,
                                    8, 1,  2,  4,  8,  1,  2,  4,  8,  -1, -1,
                                    -1, -1, -1, 1, 2,  4,  2,  4,  2,  4};
  return widths[tag - 0xc0];
}

CX_FN cx_head cx_look(cx_value v) {
  cx_head none = {CX_NOTHING, 0, 0, 0}, head = {CX_NOTHING, 1, 0, 0};
  if (!v.size) return none;
  uint8_t tag = v.at[0];
  if (tag < 0x80 || tag >= 0xe0) {
    head.kind = CX_INT;
    head.bits = (uint64_t)(int64_t)(int8_t)tag;
  } else if (tag < 0xc0) {
    head.kind = tag < 0x90 ? CX_MAP : tag < 0xa0 ? CX_ARRAY : CX_TEXT;
    head.count = tag & (tag < 0xa0 ? 0x0f : 0x1f);
  } else {
    int width = cx_width(tag);
    if (width < 0 || (uint32_t)width >= v.size) return none;
    for (int i = 1; i <= width; i++) head.bits = head.bits << 8 | v.at[i];
    head.size += (uint32_t)width;
    head.count = (uint32_t)head.bits;
    if (tag == 0xc0) head.kind = CX_NIL;
    else if (tag <= 0xc3) head.kind = CX_BOOL, head.bits = tag & 1;
    else if (tag <= 0xcb) head.kind = CX_DOUBLE;
    else if (tag <= 0xd3) head.kind = CX_INT;
    else head.kind = tag <= 0xdb ? CX_TEXT : tag <= 0xdd ? CX_ARRAY : CX_MAP;
    if (tag >= 0xd0 && tag <= 0xd3 && width < 8) { /* extend the sign */
      uint64_t sign = (uint64_t)1 << (8 * width - 1);
      head.bits = (head.bits ^ sign) - sign;
    }
  }
  if (head.kind == CX_TEXT && head.count > v.size - head.size) return none;
  return head;
}

/* The rest after the first value in `v`. Each step consumes a byte at least. */
CX_FN cx_value cx_after(cx_value v) {
  for (uint64_t waiting = 1; waiting; waiting--) {
    cx_head head = cx_look(v);
    uint32_t step = head.size + (head.kind == CX_TEXT ? head.count : 0);
    if (head.kind == CX_NOTHING) step = v.size;
    if (!step) return v;
    if (head.kind == CX_ARRAY) waiting += head.count;
    if (head.kind == CX_MAP) waiting += 2 * (uint64_t)head.count;
    v.at += step;
    v.size -= step;
  }
  return v;
}

CX_FN cx_kind cx_kind_of(cx_value v) { return cx_look(v).kind; }

/* Number of values of an array or pairs of a map; 0 for other types. */
CX_FN uint32_t cx_count(cx_value v) {
  cx_head head = cx_look(v);
  return head.kind == CX_ARRAY || head.kind == CX_MAP ? head.count : 0;
}

CX_FN cx_text cx_text_of(cx_value v) {
  cx_head head = cx_look(v);
  if (head.kind != CX_TEXT) return cx_c("");
  return (cx_text){(const char *)v.at + head.size, head.count};
}

CX_FN int64_t cx_int_of(cx_value v) {
  cx_head head = cx_look(v);
  return head.kind == CX_INT ? (int64_t)head.bits : 0;
}

CX_FN bool cx_bool_of(cx_value v) {
  cx_head head = cx_look(v);
  return head.kind == CX_BOOL && head.bits;
}

CX_FN double cx_double_of(cx_value v) {
  cx_head head = cx_look(v);
  union {
    uint64_t bits;
    double number;
  } wide = {head.bits};
  union {
    uint32_t bits;
    float number;
  } narrow = {(uint32_t)head.bits};
  if (head.kind == CX_INT) return (double)(int64_t)head.bits;
  if (head.kind != CX_DOUBLE) return 0;
  return head.size == 9 ? wide.number : (double)narrow.number;
}

/* The contents of an array or map, without its head. */
CX_FN cx_value cx_inside(cx_value v) {
  uint32_t head = cx_look(v).size;
  return (cx_value){v.at + head, v.size - head};
}

/* The first value in `v`, without what follows it. */
CX_FN cx_value cx_first(cx_value v) {
  return (cx_value){v.at, v.size - cx_after(v).size};
}

/* Value `index` of an array. */
CX_FN cx_value cx_at(cx_value v, uint32_t index) {
  if (cx_kind_of(v) != CX_ARRAY || index >= cx_count(v))
    return (cx_value){v.at, 0};
  v = cx_inside(v);
  while (index-- && v.size) v = cx_after(v);
  return cx_first(v);
}

/* The value of a key of a map. */
CX_FN cx_value cx_get(cx_value v, cx_text key) {
  uint32_t pairs = cx_kind_of(v) == CX_MAP ? cx_count(v) : 0;
  for (v = cx_inside(v); pairs-- && v.size; v = cx_after(v)) {
    bool found = cx_kind_of(v) == CX_TEXT && cx_equal(cx_text_of(v), key);
    v = cx_after(v);
    if (found) return cx_first(v);
  }
  return (cx_value){v.at, 0};
}

/* The decimal number in a text, or UINT32_MAX, which is never an index. */
CX_FN uint32_t cx_index(cx_text text) {
  uint32_t index = 0;
  for (uint32_t i = 0; i < text.size; i++) {
    bool digit = text.at[i] >= '0' && text.at[i] <= '9';
    if (!digit || index > UINT32_MAX / 10 - 1) return UINT32_MAX;
    index = index * 10 + (uint32_t)(text.at[i] - '0');
  }
  return text.size ? index : UINT32_MAX;
}

/* The value at a path of keys and indexes: cx_find(v, "data.content.0.text"). */
CX_FN cx_value cx_find(cx_value v, const char *path) {
  while (*path && v.size) {
    cx_text part = {path, 0};
    for (; *path && *path != '.'; path++) part.size++;
    if (*path) path++;
    v = cx_kind_of(v) == CX_MAP ? cx_get(v, part) : cx_at(v, cx_index(part));
  }
  return v;
}

/* Copies a value unchanged; a missing value becomes nil. */
CX_FN void cx_copy(cx_writer *w, cx_value v) {
  v = cx_first(v);
  if (v.size) cx_raw(w, v.at, v.size);
  else cx_nil(w);
}

/* ---- Calling the host ----------------------------------------------------- */

typedef enum {
  CX_OK,
  CX_TOOL_ERROR,  /* the tool answered with an error */
  CX_DENIED,      /* not sent: no rule allows it, or a rule denies it */
  CX_FAILED,      /* no answer; it may have had an effect; see error.code */
  CX_BAD_REQUEST, /* the host could not read the request */
  CX_NO_ROOM      /* a writer was full (nothing was sent), or memory is */
} cx_status;

typedef struct {
  cx_status status;
  cx_value value;
} cx_reply;

#ifndef CX_REPLY_SIZE
#define CX_REPLY_SIZE 8192
#endif
#define CX_PAGE 65536

static uint8_t cx_first_buffer[CX_REPLY_SIZE];
static uint8_t *cx_buffer = cx_first_buffer;
static uint32_t cx_buffer_size = CX_REPLY_SIZE;

/* The host keeps a reply that does not fit: grow the buffer, then fetch it. */
CX_FN cx_reply cx_received(uint64_t result) {
  uint32_t size = (uint32_t)result;
  if (size > cx_buffer_size) {
    uint32_t pages = (size - 1) / CX_PAGE + 1;
    uintptr_t grown = __builtin_wasm_memory_grow(0, pages);
    if (grown == (uintptr_t)-1)
      return (cx_reply){CX_NO_ROOM, {cx_buffer, 0}};
    cx_buffer = (uint8_t *)(grown * CX_PAGE);
    cx_buffer_size = pages * CX_PAGE;
    size = cx_host_take_reply(cx_buffer, cx_buffer_size);
  }
  return (cx_reply){(cx_status)(result >> 32), {cx_buffer, size}};
}

/*
 * Calls a tool by its exposed name, and empties `params`.
 *
 * The value is a map: "status", "message", "data", and "error" ("code",
 * "message") when the status is not CX_OK.
 */
CX_FN cx_reply cx_call(const char *name, cx_writer *params) {
  cx_text view = cx_c(name);
  uint32_t size = params->size;
  bool full = params->full;
  params->size = 0;
  params->full = false;
  if (full) return (cx_reply){CX_NO_ROOM, {cx_buffer, 0}};
  return cx_received(cx_host_mcp_call(view.at, view.size, params->bytes, size,
                                      cx_buffer, cx_buffer_size));
}

/*
 * A batch of concurrent calls: at most 64 calls and 1 MiB.
 *
 *     CX_BATCH(batch, 512);
 *     cx_map(cx_add(&batch, "mcp__demo__now"), 0);
 *     cx_map(cx_add(&batch, "mcp__demo__list"), 0);
 *     cx_reply replies = cx_call_many(&batch);
 *     cx_reply list = cx_answer(replies, 1);
 */
typedef struct {
  cx_writer items; /* starts with space for the head of an array */
  uint32_t count;
} cx_batch;

#define CX_BATCH_HEAD 3

/* Declares a batch for up to `room` bytes of names and params. */
#define CX_BATCH(name, room)                       \
  static uint8_t name##_bytes[(room) + CX_BATCH_HEAD]; \
  cx_batch name = {                                \
      {name##_bytes, (room) + CX_BATCH_HEAD, CX_BATCH_HEAD, false}, 0}

/* Adds a call to a batch. Write its params to the returned writer. */
CX_FN cx_writer *cx_add(cx_batch *batch, const char *name) {
  batch->count++;
  cx_array(&batch->items, 2);
  cx_str(&batch->items, name);
  return &batch->items;
}

/*
 * Makes the calls of a batch concurrently, and empties it.
 *
 * CX_OK means that the batch was read: the value is an array with one reply per
 * call, in the order of the calls. cx_answer returns each of them.
 */
CX_FN cx_reply cx_call_many(cx_batch *batch) {
  cx_writer *items = &batch->items;
  uint32_t size = items->size;
  bool full = items->full;
  items->bytes[0] = 0xdc;
  items->bytes[1] = (uint8_t)(batch->count >> 8);
  items->bytes[2] = (uint8_t)batch->count;
  items->size = CX_BATCH_HEAD;
  items->full = false;
  batch->count = 0;
  if (full) return (cx_reply){CX_NO_ROOM, {cx_buffer, 0}};
  return cx_received(
      cx_host_mcp_call_many(items->bytes, size, cx_buffer, cx_buffer_size));
}

/* Reply `index` of a batch, in the form that cx_call returns. */
CX_FN cx_reply cx_answer(cx_reply replies, uint32_t index) {
  static const char *const words[] = {"ok", "tool_error", "denied", "failed"};
  if (replies.status != CX_OK) return replies;
  cx_reply answer = {CX_BAD_REQUEST, cx_at(replies.value, index)};
  cx_text word = cx_text_of(cx_find(answer.value, "status"));
  for (uint32_t i = 0; i < 4; i++)
    if (cx_same(word, words[i])) answer.status = (cx_status)i;
  return answer;
}

/*
 * The message in the answer of a language model that is a tool: a map with
 * "role", "content", and "tool_calls" if the model requests calls. Their
 * arguments are JSON text.
 */
CX_FN cx_value cx_message(cx_reply reply) {
  cx_value found = cx_find(reply.value, "data.structuredContent");
  cx_value message = cx_find(found, "choices.0.message");
  return message.size ? message : found;
}

/* The granted tools: an array of maps "name", "description", "input_schema". */
CX_FN cx_reply cx_tools(void) {
  return cx_received(cx_host_tools(cx_buffer, cx_buffer_size));
}

/* A variable of the run; CX_BAD_REQUEST if the run has no such variable. */
CX_FN cx_reply cx_context(const char *key) {
  cx_text view = cx_c(key);
  return cx_received(
      cx_host_context(view.at, view.size, cx_buffer, cx_buffer_size));
}

/* The input of the run; nil by default. */
CX_FN cx_reply cx_input(void) {
  return cx_received(cx_host_input(cx_buffer, cx_buffer_size));
}

/* Sets the output of the run to the value in `w`. The last value counts. */
CX_FN bool cx_output(cx_writer *w) {
  if (w->full) return false;
  cx_host_output(w->bytes, w->size);
  return true;
}

/* Sets the output of the run to a text. */
CX_FN bool cx_output_str(const char *text) {
  CX_BUFFER(result, 1024);
  cx_str(&result, text);
  return cx_output(&result);
}

typedef enum { CX_DEBUG, CX_INFO, CX_WARNING, CX_ERROR } cx_level;

CX_FN void cx_log_view(cx_level level, cx_text text) {
  cx_host_log((uint32_t)level, text.at, text.size);
}

CX_FN void cx_log(cx_level level, const char *text) {
  cx_log_view(level, cx_c(text));
}

/* Microseconds since 1970, from the log; a replay returns the same. */
CX_FN int64_t cx_now(void) { return cx_host_now(); }

/* 64 random bits from the seed in the log; a replay returns the same. */
CX_FN uint64_t cx_random(void) {
  uint64_t bits;
  cx_host_random(&bits, sizeof bits);
  return bits;
}

#endif
