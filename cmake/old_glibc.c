/* old_glibc.c - what this project and libstdc++ use of glibc 2.28 and later, for a library that
 * runs with 2.27 (old_glibc.py). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

char __libc_single_threaded = 0; /* not known: then counts are atomic */

/* Functions of their own since 2.33; the kernel's struct is that of 64-bit programs. */
int stat(const char* path, struct stat* out) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, 0);
}
int lstat(const char* path, struct stat* out) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
int fstat(int file, struct stat* out) { return (int)syscall(SYS_fstat, file, out); }
int mknod(const char* path, mode_t mode, dev_t device) {
  return (int)syscall(SYS_mknodat, AT_FDCWD, path, mode, device);
}
int stat64(const char* path, struct stat64* out) __attribute__((alias("stat")));
int lstat64(const char* path, struct stat64* out) __attribute__((alias("lstat")));
int fstat64(int file, struct stat64* out) __attribute__((alias("fstat")));

/* Of files of any size, which all are in 64-bit programs. fcntl() may be a macro of this name. */
extern int fcntl_of_all(int file, int command, ...) __asm__("fcntl");
int fcntl64(int file, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  return fcntl_of_all(file, command, argument);
}

uint32_t arc4random(void) { /* seeds std::random_device */
  uint32_t word;
  while (getrandom(&word, sizeof word, 0) != (ssize_t)sizeof word) {
  }
  return word;
}

/* The same point in time by the clock that the older functions wait by. */
static struct timespec by_wall_clock(clockid_t clock, const struct timespec* until) {
  struct timespec now, at;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &at);
  at.tv_sec += until->tv_sec - now.tv_sec;
  at.tv_nsec += until->tv_nsec - now.tv_nsec;
  for (; at.tv_nsec < 0; at.tv_nsec += 1000000000) --at.tv_sec;
  for (; at.tv_nsec >= 1000000000; at.tv_nsec -= 1000000000) ++at.tv_sec;
  return at;
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  const struct timespec at = by_wall_clock(clock, until);
  return pthread_cond_timedwait(condition, mutex, &at);
}

int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const struct timespec* until) {
  const struct timespec at = by_wall_clock(clock, until);
  return pthread_mutex_timedlock(mutex, &at);
}

/* Since 2.34 a program leaves its constructors to glibc; before it had to ask. */
typedef int Main(int, char**, char**);
typedef void Constructor(int, char**, char**);
extern Constructor *__preinit_array_start[], *__preinit_array_end[], *__init_array_start[],
    *__init_array_end[];
#pragma weak __preinit_array_start
#pragma weak __preinit_array_end
#pragma weak __init_array_start
#pragma weak __init_array_end

static void construct(int count, char** arguments, char** environment) {
  for (Constructor** each = __preinit_array_start; each != __preinit_array_end; ++each)
    (*each)(count, arguments, environment);
  for (Constructor** each = __init_array_start; each != __init_array_end; ++each)
    (*each)(count, arguments, environment);
}

extern int __real___libc_start_main(Main*, int, char**, Constructor*, void (*)(void),
                                    void (*)(void), void*);
int __wrap___libc_start_main(Main* program, int count, char** arguments, Constructor* constructor,
                             void (*destructor)(void), void (*rtld_fini)(void), void* stack_end) {
  return __real___libc_start_main(program, count, arguments, constructor ? constructor : construct,
                                  destructor, rtld_fini, stack_end);
}
