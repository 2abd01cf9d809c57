// SPDX-License-Identifier: Apache-2.0
/* A stand-in for libcuda and libnvrtc that compiles CUDA C++ with g++ and runs the kernels on the CPU: their arithmetic
 * can be tested without a GPU. What runs through it is not tested with CUDA. Streams are threads that dawdle, so that what
 * does not wait for an event comes too early; memory ends where the process may not read. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#define OK(name) extern "C" int name(void) { return 0; }
#define API extern "C" int

static std::mutex lock, running;
struct mapping { void *at; size_t length; };
static std::map<uintptr_t, mapping> mappings;
static uint64_t last_id;

/* The memory ends where a page of no access begins, but for what aligns its beginning. */
static uintptr_t allocate(size_t size, size_t align)
{
	size_t length = (size + 2 * 4096 - 1) & ~4095ul;
	char *p = (char *)mmap(0, length + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
	if (p == MAP_FAILED || mprotect(p + length, 4096, PROT_NONE))
		return 0;
	uintptr_t at = (uintptr_t)(p + length - size) & ~(align - 1);
	std::lock_guard<std::mutex> hold(lock);
	mappings[at] = {p, length + 4096};
	return at;
}

static int release(uintptr_t at)
{
	std::lock_guard<std::mutex> hold(lock);
	auto m = mappings.find(at);
	if (m == mappings.end())
		return 1;
	munmap(m->second.at, m->second.length);
	mappings.erase(m);
	return 0;
}

OK(cuInit)
API cuDriverGetVersion(int *v) { return *v = 12020, 0; }
API cuDeviceGetCount(int *n) { return *n = 1, 0; }
API cuDeviceGet(int *d, int i) { return *d = i, 0; }
API cuDeviceGetName(char *s, int n, int) { return strncpy(s, "this CPU", n), 0; }
API cuDeviceGetAttribute(int *v, int attribute, int)
{
	switch (attribute) {
	case 1: *v = 1024; break; /* threads a block */
	case 8: *v = 48 << 10; break;
	case 16: *v = 1; break; /* one multiprocessor: blocks take many tiles */
	case 39: *v = 2048; break;
	case 75: *v = 8; break;
	case 76: *v = 7; break;
	case 19: case 41: case 113: *v = 1; break;
	default: *v = 0;
	}
	return 0;
}
API cuDevicePrimaryCtxRetain(void **c, int) { return *c = &last_id, 0; }
OK(cuDevicePrimaryCtxRelease_v2)
OK(cuCtxSetCurrent)
API cuGetErrorName(int e, const char **s) { return *s = e == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_STANDIN", 0; }
API cuGetErrorString(int, const char **s) { return *s = "the stand-in refuses", 0; }
static const size_t total = 1ul << 30; /* of the device's memory */
static size_t used;
static std::map<uintptr_t, size_t> sizes;

API cuMemGetInfo_v2(size_t *f, size_t *t)
{
	std::lock_guard<std::mutex> hold(lock);
	return *f = total - used, *t = total, 0;
}
API cuMemHostAlloc(uintptr_t *p, size_t n, unsigned) { return (*p = allocate(n, 4096)) ? 0 : 2; }
API cuMemFreeHost(uintptr_t p) { return release(p); }
API cuMemAlloc_v2(uintptr_t *p, size_t n)
{
	{
		std::lock_guard<std::mutex> hold(lock);
		if (n > total - used)
			return 2;
		used += n;
	}
	if (!(*p = allocate(n, 256)))
		return 2;
	std::lock_guard<std::mutex> hold(lock);
	return sizes[*p] = n, 0;
}
API cuMemFree_v2(uintptr_t p)
{
	{
		std::lock_guard<std::mutex> hold(lock);
		used -= sizes[p];
		sizes.erase(p);
	}
	return release(p);
}
API cuMemHostGetDevicePointer_v2(uintptr_t *d, uintptr_t p, unsigned) { return *d = p, 0; }
OK(cuMemHostRegister_v2)
OK(cuMemHostUnregister)
API cuPointerGetAttributes(unsigned, int *, void **data, uintptr_t p)
{
	*(unsigned *)data[0] = 1;
	*(uint64_t *)data[1] = ++last_id;
	*(unsigned *)data[2] = 0;
	*(uintptr_t *)data[3] = p;
	return 0;
}
OK(cuPointerSetAttribute)

#include "streams.h"

API cuMemcpyHtoD_v2(void *to, const void *from, size_t n) { return memcpy(to, from, n), 0; }

struct copy2D { /* CUDA_MEMCPY2D */
	size_t sx, sy;
	int stype;
	const char *shost, *sdevice, *sarray;
	size_t spitch, dx, dy;
	int dtype;
	char *dhost, *ddevice, *darray;
	size_t dpitch, width, height;
};

API cuMemcpy2DAsync_v2(const copy2D *given, stream *s)
{
	const copy2D c = *given;
	if (c.width > c.spitch || c.width > c.dpitch)
		return 1;
	return s->put([=] {
		if (c.dtype == 2) /* to the device: longer than a kernel takes to begin */
			usleep(3000);
		for (size_t y = 0; y < c.height; y++)
			memcpy((c.dtype == 1 ? c.dhost : c.ddevice) + y * c.dpitch, (c.stype == 1 ? c.shost : c.sdevice) + y * c.spitch, c.width);
	});
}

/* A module's code is the name of a shared object. */
struct function {
	void *kernel;
	void *(*keep)(void **);
	void (*run)(void *, void *, unsigned, unsigned);
};

API cuModuleLoadData(void **m, const char *image)
{
	if (!(*m = dlopen(image, RTLD_NOW | RTLD_LOCAL)))
		fprintf(stderr, "%s\n", dlerror());
	return *m ? 0 : 200;
}
API cuModuleUnload(void *m) { return dlclose(m); }
API cuModuleGetFunction(function **f, void *m, const char *name)
{
	*f = new function{dlsym(m, name), (void *(*)(void **))dlsym(m, "keep_parameters"), (void (*)(void *, void *, unsigned, unsigned))dlsym(m, "run_kernel")};
	return (*f)->kernel && (*f)->keep && (*f)->run ? 0 : 500;
}
API cuLaunchKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, stream *s,
		   void **parameters, void **)
{
	if (gx == 0 || gy == 0 || gz != 1 || bx != 32 || by != 8 || bz != 1)
		return 1;
	void *kept = f->keep(parameters);
	return s->put([=] {
		std::lock_guard<std::mutex> hold(running); /* shared memory is static */
		f->run(f->kernel, kept, gx, gy);
	});
}
API cuLaunchHostFunc(stream *s, void (*f)(void *), void *data)
{
	return s->put([=] {
		usleep(2000); /* what does not wait for it comes too early */
		f(data);
	});
}

struct program {
	std::string source, path, log;
};

API nvrtcVersion(int *major, int *minor) { return *major = 12, *minor = 2, 0; }
extern "C" const char *nvrtcGetErrorString(int) { return "the stand-in does not compile it"; }
API nvrtcCreateProgram(program **p, const char *source, const char *, int, void *, void *) { return *p = new program{source, "", ""}, 0; }
API nvrtcDestroyProgram(program **p) { return delete *p, 0; }
API nvrtcGetProgramLogSize(program *p, size_t *n) { return *n = p->log.size() + 1, 0; }
API nvrtcGetProgramLog(program *p, char *to) { return strcpy(to, p->log.c_str()), 0; }
API nvrtcGetCUBINSize(program *p, size_t *n) { return *n = p->path.size() + 1, 0; }
API nvrtcGetCUBIN(program *p, char *to) { return strcpy(to, p->path.c_str()), 0; }
API nvrtcCompileProgram(program *p, int n, const char **options)
{
	std::string folder = getenv("STANDIN_FOLDER"), name = folder + "/kernel-XXXXXX";
	int fd = mkstemp(&name[0]);
	if (fd < 0)
		return 1;
	FILE *f = fdopen(fd, "w");
	fprintf(f, "#include \"%s/cpu.h\"\n%s\n#include \"%s/run.h\"\n", getenv("STANDIN_SOURCE"), p->source.c_str(), getenv("STANDIN_SOURCE"));
	fclose(f);
	p->path = name + ".so";
	std::vector<const char *> args = {"g++", "-x", "c++", "-std=c++14", "-w", "-O1", "-fwrapv", "-shared", "-fPIC", "-o", p->path.c_str(), name.c_str()};
	for (int i = 0; i < n; i++)
		if (strncmp(options[i], "-D", 2) == 0)
			args.push_back(options[i]);
	args.push_back(nullptr);
	pid_t pid = fork();
	if (pid == 0) {
		execvp("g++", (char **)args.data());
		_exit(127);
	}
	int status = 1;
	waitpid(pid, &status, 0);
	p->log = "see what g++ says";
	return status == 0 ? 0 : 6;
}
