/*
 * glue.c: the JavaScript engine as a core module of the host.
 *
 * `run` runs a program, or the agent that `prepare` loaded. `prepare` is called when a
 * module is built: it loads sources, and returns the memory as its output. The module
 * that is built from that memory continues where `prepare` ended.
 *
 * What can be JavaScript is: runtime.js drives a run. This file has what cannot.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <wasi/api.h>

#include "quickjs.h"
#include "values.h"

#define IMPORT(name) __attribute__((import_module("caxton"), import_name(#name)))

IMPORT(mcp_call)
uint64_t host_mcp_call(const void *name, size_t name_size, const void *params,
                       size_t params_size, void *out, size_t room);
IMPORT(mcp_call_many)
uint64_t host_mcp_call_many(const void *batch, size_t size, void *out, size_t room);
IMPORT(take_reply) uint32_t host_take_reply(void *out, size_t room);
IMPORT(tools) uint64_t host_tools(void *out, size_t room);
IMPORT(context)
uint64_t host_context(const void *key, size_t size, void *out, size_t room);
IMPORT(input) uint64_t host_input(void *out, size_t room);
IMPORT(output) void host_output(const void *from, size_t size);
IMPORT(now) int64_t host_now(void);
IMPORT(random) void host_random(void *out, size_t size);
IMPORT(log) void host_log(uint32_t level, const void *text, size_t size);
IMPORT(program) uint64_t host_program(void *out, size_t room);
IMPORT(fail) void host_fail(const void *text, size_t size);

/* A part of the stack that functions which do not look at the limit may use. */
#define SPARE (64 * 1024)
/* Garbage is collected when the heap has grown by this much. */
#define GARBAGE (4 * 1024 * 1024)
#define RESERVE (64 * 1024)
#define LARGEST_RANDOM (4 * 1024 * 1024)
#define BAD_REQUEST 4

static JSRuntime *runtime;
static JSContext *ctx;
/* The exports of runtime.js. */
static JSValue driver;
/* Whether a run is under way: the host functions can be used. */
static bool running;

/* ---- Memory ------------------------------------------------------------------------- */

/* Given back when memory is full, so that the engine has some for its error. */
static void *reserve;

static void *given(void *at, size_t size) {
  if (!at && size) {
    free(reserve);
    reserve = NULL;
  }
  return at;
}

static void *js_malloc_(void *unused, size_t size) {
  (void)unused;
  return given(malloc(size), size);
}

static void *js_calloc_(void *unused, size_t count, size_t size) {
  (void)unused;
  return given(calloc(count, size), count * size);
}

static void *js_realloc_(void *unused, void *at, size_t size) {
  (void)unused;
  return given(realloc(at, size), size);
}

static void js_free_(void *unused, void *at) {
  (void)unused;
  free(at);
}

static size_t js_size_of(const void *at) { return malloc_usable_size((void *)at); }

static const JSMallocFunctions memory = {
    js_calloc_, js_malloc_, js_free_, js_realloc_, js_size_of,
};

/* ---- Host functions ---------------------------------------------------------------- */

static uint8_t *inbox;
static size_t inbox_room;

static bool roomy(size_t size) {
  if (size <= inbox_room) return true;
  uint8_t *at = realloc(inbox, size);
  if (!at) return false;
  inbox = at;
  inbox_room = size;
  return true;
}

/* Return the reply that a host function announced. */
static JSValue reply(uint64_t announced) {
  size_t size = (uint32_t)announced;
  if (size > inbox_room) {
    if (!roomy(size)) return JS_ThrowOutOfMemory(ctx);
    host_take_reply(inbox, inbox_room);
  }
  return decode(ctx, inbox, size);
}

static JSValue unavailable(const char *name) {
  return JS_ThrowPlainError(
      ctx, "%s is not available during the build: call it in run()", name);
}

#define HOST(name)                                                                   \
  static JSValue name(JSContext *c, JSValueConst self, int count, JSValueConst *args)
#define RUNNING(name)                                                                \
  (void)c, (void)self, (void)count, (void)args;                                      \
  if (!running) return unavailable(name)

/* Pack a call, [name, params], as it is sent. */
HOST(js_pack) {
  RUNNING("mcpCall");
  Bytes call = {0};
  if (encode(ctx, &call, args[0]) <= 0) {
    free(call.at);
    return JS_EXCEPTION;
  }
  JSValue packed = JS_NewArrayBufferCopy(ctx, call.at, call.size);
  free(call.at);
  return packed;
}

/* Send one packed call. */
HOST(js_mcp_call) {
  RUNNING("mcpCall");
  size_t size;
  uint8_t *call = JS_GetArrayBuffer(ctx, &size, args[0]);
  if (!call) return JS_EXCEPTION;
  Text name = text_at(call + 1, size - 1);
  const uint8_t *params = name.at + name.size;
  return reply(host_mcp_call(name.at, name.size, params, (size_t)(call + size - params),
                             inbox, inbox_room));
}

/* Send an array of packed calls as one batch. */
HOST(js_mcp_call_many) {
  RUNNING("mcpCallMany");
  Bytes batch = {0};
  int64_t calls = 0;
  int done = JS_GetLength(ctx, args[0], &calls);
  if (done >= 0) done = put_head(ctx, &batch, 0, (uint32_t)calls, 0);
  for (int64_t i = 0; i < calls && done >= 0; i++) {
    JSValue call = JS_GetPropertyInt64(ctx, args[0], i);
    size_t size;
    uint8_t *at = JS_GetArrayBuffer(ctx, &size, call);
    done = at ? put(ctx, &batch, at, size) : -1;
    JS_FreeValue(ctx, call);
  }
  JSValue replies = done < 0 ? JS_EXCEPTION
                             : reply(host_mcp_call_many(batch.at, batch.size, inbox,
                                                        inbox_room));
  free(batch.at);
  return replies;
}

HOST(js_tools) {
  RUNNING("tools");
  return reply(host_tools(inbox, inbox_room));
}

HOST(js_input) {
  RUNNING("input");
  return reply(host_input(inbox, inbox_room));
}

HOST(js_program) {
  RUNNING("program");
  return reply(host_program(inbox, inbox_room));
}

HOST(js_context) {
  RUNNING("context");
  size_t size;
  const char *key = JS_ToCStringLen(ctx, &size, args[0]);
  if (!key) return JS_EXCEPTION;
  uint64_t announced = host_context(key, size, inbox, inbox_room);
  JS_FreeCString(ctx, key);
  JSValue value = reply(announced);
  if (announced >> 32 != BAD_REQUEST) return value;
  JS_FreeValue(ctx, value);
  return JS_UNDEFINED;
}

HOST(js_output) {
  RUNNING("output");
  Bytes value = {0};
  int done = encode(ctx, &value, args[0]);
  if (done >= 0) host_output(done ? value.at : (uint8_t *)"\xc0", done ? value.size : 1);
  free(value.at);
  return done < 0 ? JS_EXCEPTION : JS_UNDEFINED;
}

HOST(js_now) {
  RUNNING("now");
  return JS_NewInt64(ctx, host_now());
}

HOST(js_random) {
  RUNNING("random");
  uint32_t size;
  if (JS_ToUint32(ctx, &size, args[0]) < 0) return JS_EXCEPTION;
  if (size > LARGEST_RANDOM)
    return JS_ThrowRangeError(ctx, "more than %d random bytes", LARGEST_RANDOM);
  if (!roomy(size)) return JS_ThrowOutOfMemory(ctx);
  host_random(inbox, size);
  return JS_NewUint8ArrayCopy(ctx, inbox, size);
}

HOST(js_log) {
  RUNNING("log");
  size_t size;
  uint32_t level;
  if (JS_ToUint32(ctx, &level, args[0]) < 0) return JS_EXCEPTION;
  const char *text = JS_ToCStringLen(ctx, &size, args[1]);
  if (!text) return JS_EXCEPTION;
  host_log(level, text, size);
  JS_FreeCString(ctx, text);
  return JS_UNDEFINED;
}

/* ---- Modules -------------------------------------------------------------------------- */

/* Evaluate a text as a module: [promise of its end, its exports]. */
HOST(js_evaluate) {
  (void)c, (void)self, (void)count;
  size_t size;
  const char *text = JS_ToCStringLen(ctx, &size, args[0]);
  const char *name = text ? JS_ToCString(ctx, args[1]) : NULL;
  int flags = JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY;
  JSValue made = name ? JS_Eval(ctx, text, size, name, flags) : JS_EXCEPTION;
  JS_FreeCString(ctx, name);
  JS_FreeCString(ctx, text);
  if (JS_IsException(made) || JS_ResolveModule(ctx, made) < 0) return JS_EXCEPTION;
  JSModuleDef *module = JS_VALUE_GET_PTR(made);
  JSValue pair[2] = {JS_EvalFunction(ctx, made), JS_UNDEFINED};
  if (JS_IsException(pair[0])) return JS_EXCEPTION;
  pair[1] = JS_GetModuleNamespace(ctx, module);
  return JS_NewArrayFrom(ctx, 2, pair);
}

static JSValue ask_driver(const char *name, int count, JSValueConst *args) {
  JSValue function = JS_GetPropertyStr(ctx, driver, name);
  JSValue answer = JS_Call(ctx, function, JS_UNDEFINED, count, args);
  JS_FreeValue(ctx, function);
  return answer;
}

static char *resolve(JSContext *c, const char *base, const char *name, void *unused) {
  (void)c, (void)unused;
  if (JS_IsUndefined(driver)) return js_strdup(ctx, name);
  JSValue args[2] = {JS_NewString(ctx, base), JS_NewString(ctx, name)};
  JSValue found = ask_driver("resolve", 2, args);
  const char *text = JS_IsException(found) ? NULL : JS_ToCString(ctx, found);
  char *copy = text ? js_strdup(ctx, text) : NULL;
  JS_FreeCString(ctx, text);
  JS_FreeValue(ctx, found);
  JS_FreeValue(ctx, args[0]);
  JS_FreeValue(ctx, args[1]);
  return copy;
}

static JSModuleDef *load(JSContext *c, const char *name, void *unused) {
  (void)c, (void)unused;
  size_t size;
  JSValue wanted = JS_NewString(ctx, name);
  JSValue source = ask_driver("load", 1, &wanted);
  JS_FreeValue(ctx, wanted);
  const char *text = JS_IsException(source) ? NULL : JS_ToCStringLen(ctx, &size, source);
  int flags = JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY;
  JSValue made = text ? JS_Eval(ctx, text, size, name, flags) : JS_EXCEPTION;
  JS_FreeCString(ctx, text);
  JS_FreeValue(ctx, source);
  if (JS_IsException(made)) return NULL;
  JSModuleDef *module = JS_VALUE_GET_PTR(made);
  JS_FreeValue(ctx, made);
  return module;
}

static void rejected(JSContext *c, JSValueConst promise, JSValueConst reason,
                     bool handled, void *unused) {
  (void)c, (void)unused;
  if (JS_IsUndefined(driver)) return;
  JSValueConst args[3] = {promise, reason, JS_NewBool(ctx, handled)};
  JS_FreeValue(ctx, ask_driver("rejected", 3, args));
}

/* ---- Errors ----------------------------------------------------------------------------- */

HOST(js_fail) {
  (void)c, (void)self, (void)count;
  size_t size;
  const char *text = JS_ToCStringLen(ctx, &size, args[0]);
  if (!text) return JS_EXCEPTION;
  host_fail(text, size);
  JS_FreeCString(ctx, text);
  return JS_UNDEFINED;
}

HOST(js_is_running) {
  (void)c, (void)self, (void)count, (void)args;
  return JS_NewBool(ctx, running);
}

/* Tell what was thrown, where runtime.js itself could not. */
static int broken(void) {
  static const char unknown[] = "the interpreter aborted";
  JSValue error = JS_GetException(ctx);
  size_t size;
  const char *text = JS_ToCStringLen(ctx, &size, error);
  host_fail(text ? text : unknown, text ? size : sizeof unknown - 1);
  return 1;
}

/* ---- Entry points ----------------------------------------------------------------------- */

/* Run everything that was begun, until runtime.js says that it is the end. */
static int drive(const char *name, int count, JSValueConst *args) {
  reserve = malloc(RESERVE);
  JSValue begun = ask_driver(name, count, args);
  if (JS_IsException(begun)) return broken();
  JS_FreeValue(ctx, begun);
  for (;;) {
    int32_t left;
    JSContext *which;
    int ran;
    while ((ran = JS_ExecutePendingJob(runtime, &which)) > 0) continue;
    JSValue turned = ran < 0 ? JS_EXCEPTION : ask_driver("turn", 0, NULL);
    if (JS_IsException(turned)) return broken();
    if (!reserve) reserve = malloc(RESERVE);
    JS_ToInt32(ctx, &left, turned);
    JS_FreeValue(ctx, turned);
    if (left <= 0) return -left;
  }
}

__attribute__((export_name("run"))) int run(void) {
  JS_UpdateStackTop(runtime);
  running = true;
  return drive("start", 0, NULL);
}

static const JSCFunctionListEntry host_functions[] = {
    JS_CFUNC_DEF("pack", 1, js_pack),
    JS_CFUNC_DEF("mcpCall", 1, js_mcp_call),
    JS_CFUNC_DEF("mcpCallMany", 1, js_mcp_call_many),
    JS_CFUNC_DEF("tools", 0, js_tools),
    JS_CFUNC_DEF("input", 0, js_input),
    JS_CFUNC_DEF("program", 0, js_program),
    JS_CFUNC_DEF("context", 1, js_context),
    JS_CFUNC_DEF("output", 1, js_output),
    JS_CFUNC_DEF("now", 0, js_now),
    JS_CFUNC_DEF("random", 1, js_random),
    JS_CFUNC_DEF("log", 2, js_log),
    JS_CFUNC_DEF("fail", 1, js_fail),
    JS_CFUNC_DEF("isRunning", 0, js_is_running),
    JS_CFUNC_DEF("evaluate", 2, js_evaluate),
};
#define COUNT (int)(sizeof host_functions / sizeof host_functions[0])

static int export_host(JSContext *c, JSModuleDef *module) {
  return JS_SetModuleExportList(c, module, host_functions, COUNT);
}

static void boot(void) {
  runtime = JS_NewRuntime2(&memory, NULL);
  ctx = JS_NewContext(runtime);
  JSModuleDef *host = JS_NewCModule(ctx, "caxton:host", export_host);
  JS_AddModuleExportList(ctx, host, host_functions, COUNT);
  JS_SetMaxStackSize(runtime, STACK - SPARE);
  JS_SetGCThreshold(runtime, GARBAGE);
  JS_SetModuleLoaderFunc(runtime, resolve, load, NULL);
  JS_SetHostPromiseRejectionTracker(runtime, rejected, NULL);
  driver = JS_UNDEFINED;
  roomy(64 * 1024);
}

/* Evaluate the modules of the runtime, in order. The last one drives it. */
static int begin(JSValueConst modules) {
  int64_t count = 0;
  JSValue exports = JS_UNDEFINED;
  JS_GetLength(ctx, modules, &count);
  for (int64_t i = 0; i < count; i++) {
    JSValue module = JS_GetPropertyInt64(ctx, modules, i);
    JSValue args[2] = {JS_GetPropertyInt64(ctx, module, 1),
                       JS_GetPropertyInt64(ctx, module, 0)};
    JSValue made = js_evaluate(ctx, JS_UNDEFINED, 2, args);
    if (JS_IsException(made)) return broken();
    JSContext *which;
    while (JS_ExecutePendingJob(runtime, &which) > 0) continue;
    JSValue ended = JS_GetPropertyInt64(ctx, made, 0);
    if (JS_PromiseState(ctx, ended) != JS_PROMISE_FULFILLED) {
      JS_Throw(ctx, JS_PromiseResult(ctx, ended));
      return broken();
    }
    exports = JS_GetPropertyInt64(ctx, made, 1);
  }
  driver = exports;
  return 0;
}

static void give_memory(void) {
  uint8_t *own = __builtin_frame_address(0);
  /* What is below is dead. The build leaves zeros out. */
  for (uint8_t volatile *at = (uint8_t *)16; at < own; at++) *at = 0;
  host_output((void *)0, __builtin_wasm_memory_size(0) * 65536);
}

__attribute__((export_name("prepare"))) int prepare(void) {
  if (!runtime) boot();
  JS_UpdateStackTop(runtime);
  JSValue given = reply(host_program(inbox, inbox_room));
  if (JS_IsException(given)) return broken();
  int code = JS_IsArray(given) ? begin(given) : drive("prepare", 1, &given);
  if (code) return code;
  JS_FreeValue(ctx, given);
  JS_RunGC(runtime);
  give_memory();
  return 0;
}

/* ---- What the C library asks of WASI ------------------------------------------------------ */

#define WASI(name) __imported_wasi_snapshot_preview1_##name

int32_t WASI(clock_time_get)(int32_t id, int64_t precision, int32_t out) {
  (void)id, (void)precision;
  *(uint64_t *)out = running ? (uint64_t)host_now() * 1000 : 0;
  return 0;
}

int close(int fd) {
  (void)fd;
  errno = ENOTSUP;
  return -1;
}

int32_t WASI(fd_fdstat_get)(int32_t fd, int32_t out) {
  (void)fd, (void)out;
  return __WASI_ERRNO_NOTSUP;
}

int32_t WASI(fd_seek)(int32_t fd, int64_t offset, int32_t whence, int32_t out) {
  (void)fd, (void)offset, (void)whence, (void)out;
  return __WASI_ERRNO_NOTSUP;
}

int32_t WASI(fd_write)(int32_t fd, int32_t from, int32_t count, int32_t out) {
  (void)fd, (void)from, (void)count, (void)out;
  return __WASI_ERRNO_NOTSUP;
}
