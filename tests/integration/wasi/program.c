// Imports WASI and the functions of the host: asks a tool, and prints its answer.
#include "caxton.h"

#define WASI_IMPORT(name) \
  extern __attribute__((import_module("wasi_snapshot_preview1"), import_name(#name)))

typedef struct {
  const void *data;
  uint32_t size;
} vector;

WASI_IMPORT(fd_write)
int32_t fd_write(int32_t file, const vector *vectors, uint32_t count, uint32_t *out);
WASI_IMPORT(clock_time_get)
int32_t clock_time_get(int32_t clock, int64_t precision, int64_t *out);
WASI_IMPORT(proc_exit) _Noreturn void proc_exit(int32_t code);

void _start(void) {
  int64_t before, after;
  clock_time_get(0, 1, &before);
  CX_BUFFER(params, 64);
  cx_map(&params, 1);
  cx_str(&params, "text");
  cx_str(&params, "hello");
  cx_reply reply = cx_call("echo", &params);
  clock_time_get(0, 1, &after);
  cx_text text = cx_text_of(cx_find(reply.value, "message"));
  vector parts[] = {{text.at, text.size}};
  uint32_t written;
  fd_write(1, parts, 1, &written);
  // The clock moved with the answer.
  proc_exit(after > before ? 0 : 9);
}
