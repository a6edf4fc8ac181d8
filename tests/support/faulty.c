/* Faults of a disk, for tests: LD_PRELOADed, it makes syncs fail with EIO or writes with ENOSPC from the k-th on, for
   files of a ledger and its anchor, and writes down the order of syncs and renames. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int syncs = -1, writes = -1, notes = -1, tried = 0;

/* How many syncs and writes still succeed (-1: all), and where to take notes (-1: nowhere). */
void faulty_from(int sync_count, int write_count, int note_fd) {
  syncs = sync_count, writes = write_count, notes = note_fd, tried = 0;
}
int faulty_tried(void) { return tried; }

static int ours(int fd, const char *what) {
  char name[64], path[4096];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(name, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  if (what && notes >= 0) dprintf(notes, "%s %s\n", what, path);
  return strstr(path, "/x.ledger") || strstr(path, "/anchor");
}

static int out_of(int *left, int error) {
  tried++;
  if (*left == 0) {
    errno = error;
    return 1;
  }
  if (*left > 0) --*left;
  return 0;
}

#define SYNC(name)                                                   \
  int name(int fd) {                                                 \
    static int (*real)(int);                                         \
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, #name);         \
    if (ours(fd, "sync") && syncs >= 0 && out_of(&syncs, EIO)) return -1; \
    return real(fd);                                                 \
  }
SYNC(fsync)
SYNC(fdatasync)

#define PWRITE(name, offset_type)                                                                    \
  ssize_t name(int fd, const void *data, size_t size, offset_type at) {                              \
    static ssize_t (*real)(int, const void *, size_t, offset_type);                                  \
    if (!real) real = (ssize_t(*)(int, const void *, size_t, offset_type))dlsym(RTLD_NEXT, #name);   \
    if (writes >= 0 && ours(fd, 0) && out_of(&writes, ENOSPC)) return -1;                            \
    return real(fd, data, size, at);                                                                 \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t size) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  if (writes >= 0 && ours(fd, 0) && out_of(&writes, ENOSPC)) return -1;
  return real(fd, data, size);
}

int rename(const char *from, const char *to) {
  static int (*real)(const char *, const char *);
  if (!real) real = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
  if (notes >= 0) dprintf(notes, "rename %s\n", to);
  return real(from, to);
}
