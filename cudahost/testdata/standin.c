// SPDX-License-Identifier: Apache-2.0
/* A stand-in for libcuda: it has the functions' names and shapes and gives host memory. It tests how the library is
 * opened, called and refused; nothing that was only called through it counts as tested with CUDA. */
#include <stddef.h>
#include <stdint.h>

/* Without the C library's headers, which cross compilers come without. */
char *getenv(const char *name);
int access(const char *path, int mode);
int open(const char *path, int flags, ...);
int close(int fd);
int pause(void);
int posix_memalign(void **p, size_t alignment, size_t n);
void free(void *p);
int strcmp(const char *a, const char *b);
char *strncpy(char *to, const char *from, size_t n);
int madvise(void *p, size_t n, int advice);

#ifndef VERSION
#define VERSION 12020
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef MAPS
#define MAPS 1
#endif
#ifndef UNIFIED
#define UNIFIED 1
#endif
#ifndef READONLY
#define READONLY 1
#endif

#ifndef NO_SYNC
#define NO_SYNC 0 /* 1: no buffer takes SYNC_MEMOPS */
#endif

static uint64_t last_id;
static int fail_next;

#define OK(name) int name(void) { return 0; }

/* Opens the device files of STANDIN_DEVICES, with colons between them, as libcuda does those of the GPU. */
static int opens(const char *list)
{
	char path[64];
	int fd;

	for (; list && *list; list += *list == ':') {
		size_t n = 0;

		for (; *list && *list != ':' && n < sizeof(path) - 1; list++)
			path[n++] = *list;
		path[n] = 0;
		fd = open(path, 02);
		if (fd < 0)
			return 0;
		close(fd);
	}
	return 1;
}

int cuInit(unsigned flags)
{
	while (getenv("STANDIN_HANGS"))
		pause();
	if (getenv("STANDIN_CRASHES"))
		__builtin_trap();
	return flags == 0 && !getenv("STANDIN_NO_INIT") && opens(getenv("STANDIN_DEVICES")) ? 0 : 100;
}
int cuDriverGetVersion(int *v) { return *v = VERSION, 0; }
int cuDeviceGetCount(int *n) { return *n = DEVICES, 0; }
int cuDeviceGet(int *d, int i) { return *d = i, 0; }
int cuDeviceGetName(char *s, int n, int d) { return strncpy(s, "stand-in", n), d; }
int cuDeviceGetAttribute(int *v, int attribute, int d)
{
	switch (attribute) {
	case 16: *v = 14; break;
	case 19: *v = MAPS; break;
	case 41: case 91: *v = UNIFIED; break;
	case 75: *v = 8; break;
	case 76: *v = 7; break;
	case 113: *v = READONLY; break;
	case 116: return 1; /* not known to this one */
	default: *v = 0;
	}
	return d;
}
int cuDevicePrimaryCtxRetain(void **c, int d) { return *c = &last_id, d; }
OK(cuDevicePrimaryCtxRelease_v2)
int cuCtxSetCurrent(void *c) { return c == &last_id ? 0 : 201; }
int cuCtxGetDevice(int *d) { return *d = 0, 0; }
OK(cuCtxSynchronize)
int cuGetErrorName(int e, const char **s) { return *s = e == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_STANDIN", 0; }
int cuGetErrorString(int e, const char **s) { return *s = e == 2 ? "out of memory" : "as the stand-in says", 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { return *f = 1 << 20, *t = 2 << 20, 0; }
int cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
	const char *lost = getenv("STANDIN_LOST"); /* a file: while it is there, the device is lost */

	if (lost && access(lost, 0) == 0)
		return 700;
	if (n > 1 << 30 || flags > 7)
		return 2;
	fail_next = n == 3 * 4096; /* SYNC_MEMOPS of a buffer of two pages fails */
	return posix_memalign(p, 4096, n);
}
int cuMemFreeHost(void *p) { return free(p), 0; }
int cuMemHostGetDevicePointer_v2(uintptr_t *d, void *p, unsigned f)
{
	return *d = (uintptr_t)p + (UNIFIED ? 0 : 1ul << 40), getenv("STANDIN_NO_POINTER") ? 1 : (int)f;
}
static void *registered[64];
static void **found(void *p)
{
	int i = 0;

	while (i < 64 && registered[i] != p)
		i++;
	return i < 64 ? &registered[i] : 0;
}
/* Memory that cannot be written to (MADV_POPULATE_READ goes, MADV_POPULATE_WRITE does not) needs CU_MEMHOSTREGISTER_READ_ONLY. */
int cuMemHostRegister_v2(void *p, size_t n, unsigned flags)
{
	if (found(p))
		return 712;
	if (n == 0 || (uintptr_t)p % 4096 || flags & ~11u)
		return 1;
	if (flags & 8 ? !READONLY : !madvise(p, 4096, 22) && madvise(p, 4096, 23))
		return flags & 8 ? 801 : 1;
	fail_next = n == 3 * 4096;
	return found(0) ? *found(0) = p, 0 : 2;
}
int cuMemHostUnregister(void *p) { return found(p) ? *found(p) = 0, 0 : 713; }
int cuMemAlloc_v2(void **p, size_t n) { return n > 1 << 30 ? 2 : posix_memalign(p, 256, n); }
int cuMemFree_v2(void *p) { return free(p), 0; }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t n) { return memcpy(to, from, n), 0; }
int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t n, void *s) { return memcpy(to, from, n), (int)(uintptr_t)s; }
int cuMemsetD8Async(void *at, int v, size_t n, void *s) { return memset(at, v, n), (int)(uintptr_t)s; }
struct memcpy2d { /* CUDA_MEMCPY2D */
	size_t src_x, src_y;
	int src_type;
	const char *src_host, *src_device, *src_array;
	size_t src_pitch, dst_x, dst_y;
	int dst_type;
	char *dst_host, *dst_device, *dst_array;
	size_t dst_pitch, width, height;
};
int cuMemcpy2DAsync_v2(const struct memcpy2d *c, void *s)
{
	if (c->src_type + c->dst_type != 3 || c->src_x || c->src_y || c->dst_x || c->dst_y || c->src_array || c->dst_array)
		return 1;
	for (size_t y = 0; y < c->height; y++)
		memcpy((c->dst_type == 1 ? c->dst_host : c->dst_device) + y * c->dst_pitch,
		       (c->src_type == 1 ? c->src_host : c->src_device) + y * c->src_pitch, c->width);
	return (int)(uintptr_t)s;
}
int cuPointerGetAttributes(unsigned n, int *attributes, void **data, uintptr_t p)
{
	*(unsigned *)data[0] = 1;
	*(uint64_t *)data[1] = ++last_id;
	*(unsigned *)data[2] = (p >> 12 & 1) && getenv("STANDIN_MANAGED");
	*(uintptr_t *)data[3] = p;
	return n != 5 || attributes[4] != 12;
}
int cuPointerSetAttribute(const void *v, int a, uintptr_t p) { return fail_next || NO_SYNC ? 1 : a != 6 || *(unsigned *)v != 1 || !p; }
OK(cuStreamCreate)
OK(cuStreamDestroy_v2)
OK(cuStreamSynchronize)
OK(cuStreamWaitEvent)
OK(cuEventCreate)
OK(cuEventDestroy_v2)
OK(cuEventRecord)
int cuEventSynchronize(void) { return getenv("STANDIN_FAULT") ? 700 : 0; }
OK(cuModuleLoadData)
OK(cuModuleUnload)
int cuModuleGetFunction(void **f, void *m, const char *name) { return *f = m, strcmp(name, "there") ? 500 : 0; }
#ifndef INCOMPLETE
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
		   void *stream, void **params, void **extra)
{
	return gx == 4 && gy == 3 && gz == 1 && bx == 32 && by == 1 && bz == 1 && !shared && !extra && *(int *)params[1] == 77 ? 0 : 1;
}
#endif
int cuLaunchHostFunc(void *stream, void (*f)(void *), void *data) { return f(data), (int)(uintptr_t)stream; }
