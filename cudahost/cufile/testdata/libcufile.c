// SPDX-License-Identifier: Apache-2.0
/* A stand-in for libcufile: it has the functions' names and shapes, and makes transfers by pread and pwrite. It tests how the library
 * is opened, called and refused: it refuses files in folders named "refused", as the library does those of tmpfs. What ran
 * through it is not tested with libcufile. Names and layouts are those of cufile.h 1.15, written from its description and not from
 * the Go side. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { int err, cu_err; } error_t_;
typedef struct { unsigned major, minor; size_t poll, direct; unsigned dstatus, dcontrol, fflags, cache, per_buffer, pinned, batch_size, batch_timeout; } props_t;
typedef struct { int type; union { int fd; void *handle; } handle; const void *ops; } descr_t;
typedef struct { int fd; } file_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int opens;
static props_t now;

static error_t_ status(int err) { return (error_t_){ err, 0 }; }
#ifndef NVFS
#define NVFS 0
#endif
/* What only works with an open driver. */
#define OPEN(err) (opens ? status(err) : status(5001))

error_t_ cuFileDriverOpen(void)
{
	pthread_mutex_lock(&lock);
	if (!opens++)
		now = (props_t){ .major = NVFS, .poll = 4, .direct = 16384, .dcontrol = 2, .fflags = 6, .cache = 131072, .per_buffer = 1024,
				 .pinned = 33554432, .batch_size = 100, .batch_timeout = 0 };
	pthread_mutex_unlock(&lock);
#ifdef NO_CUDA
	return (error_t_){ 5011, 100 };
#endif
	return status(0);
}
error_t_ cuFileDriverClose_v2(void)
{
	pthread_mutex_lock(&lock);
	error_t_ e = OPEN(0);
	opens -= opens > 0;
	pthread_mutex_unlock(&lock);
	return e;
}
error_t_ cuFileDriverGetProperties(props_t *p) { return *p = now, OPEN(0); }
error_t_ cuFileDriverSetPollMode(bool poll, size_t kb) { return now.dcontrol = poll | 2, now.poll = kb, OPEN(0); }
error_t_ cuFileDriverSetMaxDirectIOSize(size_t kb) { return now.direct = kb, OPEN(kb ? 0 : 5003); }
error_t_ cuFileDriverSetMaxCacheSize(size_t kb) { return now.cache = kb, OPEN(0); }
error_t_ cuFileDriverSetMaxPinnedMemSize(size_t kb) { return now.pinned = kb, OPEN(0); }

error_t_ cuFileHandleRegister(void **to, descr_t *d)
{
	char path[64];
	int flags = fcntl(d->handle.fd, F_GETFL);

	if (d->type != 1 || d->ops || flags < 0)
		return OPEN(5022);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", d->handle.fd);
	char name[4096] = "";
	if (readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, "/refused/"))
		return OPEN(5027);
#ifdef BROKEN
	return OPEN(5030);
#endif
	int fd = open(path, (flags & (O_ACCMODE | O_SYNC)) | O_CLOEXEC);
	if (fd < 0)
		return OPEN(5031);
	file_t *f = malloc(sizeof(*f));
	f->fd = fd;
	*to = f;
	return OPEN(0);
}
void cuFileHandleDeregister(file_t *f)
{
	close(f->fd);
	free(f);
}

/* Registered memory with its size. */
static struct { const void *base; size_t size; } table[64];

static size_t *find(const void *base)
{
	for (int i = 0; i < 64; i++)
		if (table[i].base == base)
			return &table[i].size;
	return NULL;
}
static int set(const void *base, size_t size)
{
	int i = 0;

	pthread_mutex_lock(&lock);
	while (!find(base) && i < 64 && table[i].base)
		i++;
	int err = find(base) ? 5023 : i == 64 ? 5030 : 0;
	if (!err) {
		table[i].base = base;
		table[i].size = size;
	}
	pthread_mutex_unlock(&lock);
	return err;
}
static int drop(const void *base)
{
	pthread_mutex_lock(&lock);
	int i = 0;
	while (i < 64 && table[i].base != base)
		i++;
	if (i < 64)
		table[i].base = NULL;
	pthread_mutex_unlock(&lock);
	return i < 64 ? 0 : 5024;
}
error_t_ cuFileBufRegister(const void *base, size_t n, int flags) { return OPEN(base && n && !flags ? set(base, n) : 5022); }
error_t_ cuFileBufDeregister(const void *base) { return OPEN(drop(base)); }

static ssize_t move(file_t *f, int write, char *base, size_t n, off_t at, off_t offset)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = write ? pwrite(f->fd, base + offset + done, n - done, at + done) : pread(f->fd, base + offset + done, n - done, at + done);
		if (r < 0)
			return -1;
		if (!r)
			break;
		done += r;
	}
	return done;
}
ssize_t cuFileRead(file_t *f, void *base, size_t n, off_t at, off_t offset) { return move(f, 0, base, n, at, offset); }
ssize_t cuFileWrite(file_t *f, const void *base, size_t n, off_t at, off_t offset) { return move(f, 1, (void *)base, n, at, offset); }

/* Streams: the transfer is a call of the stand-in for CUDA. */
struct turn { file_t *f; int write; char *base; size_t *n; off_t *at, *offset; ssize_t *result; };

static void take_turn(void *p)
{
	struct turn t = *(struct turn *)p;

	free(p);
	size_t n = *t.n, *size = find(t.base);
	ssize_t r = size && *t.offset + n > *size ? -5017 : move(t.f, t.write, t.base, n, *t.at, *t.offset);
	__atomic_store_n(t.result, r, __ATOMIC_SEQ_CST);
}
static error_t_ put(struct turn t, void *stream)
{
	int (*launch)(void *, void (*)(void *), void *) = (int (*)(void *, void (*)(void *), void *))dlsym(RTLD_DEFAULT, "cuLaunchHostFunc");
	struct turn *p = malloc(sizeof(*p));

	*p = t;
	if (!launch)
		return (error_t_){ 5011, 100 };
	int cuda = launch(stream, take_turn, p);
	return cuda ? (error_t_){ 5011, cuda } : OPEN(0);
}
error_t_ cuFileReadAsync(file_t *f, void *base, size_t *n, off_t *at, off_t *offset, ssize_t *result, void *stream)
{
	return put((struct turn){ f, 0, base, n, at, offset, result }, stream);
}
#ifndef INCOMPLETE
error_t_ cuFileWriteAsync(file_t *f, void *base, size_t *n, off_t *at, off_t *offset, ssize_t *result, void *stream)
{
	return put((struct turn){ f, 1, base, n, at, offset, result }, stream);
}
#endif
