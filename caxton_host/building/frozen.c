/*
 * Loaded into a build tool (LD_PRELOAD) that runs the agent's language while it
 * builds, and keeps what it finds then: the time, and seeds of hash tables. Gives the
 * library whose path contains CAXTON_FROZEN the same of both at each build, so that the
 * same source gives the same bytes. The rest of the process has the real ones.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static bool is_frozen(const void *caller) {
  const char *part = getenv("CAXTON_FROZEN");
  Dl_info from;
  return part && dladdr(caller, &from) && from.dli_fname &&
         strstr(from.dli_fname, part);
}

ssize_t getrandom(void *out, size_t size, unsigned flags) {
  if (!is_frozen(__builtin_return_address(0)))
    return syscall(SYS_getrandom, out, size, flags);
  memset(out, 0, size);
  return (ssize_t)size;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
  if (!is_frozen(__builtin_return_address(0)))
    return (int)syscall(SYS_clock_gettime, clock, out);
  *out = (struct timespec){.tv_sec = 1};
  return 0;
}
