/* Behind a user's kernel: runs its grid. */
namespace cpu {
static void (*body)();

static void begin()
{
	body();
	ended[current] = true;
}

static void run_block()
{
	for (int i = 0; i < THREADS; i++) {
		getcontext(&thread[i]);
		thread[i].uc_stack.ss_sp = stack[i];
		thread[i].uc_stack.ss_size = STACK;
		thread[i].uc_link = &block;
		makecontext(&thread[i], begin, 0);
		ended[i] = false;
	}
	for (bool left = true; left;) {
		left = false;
		for (int i = 0; i < THREADS; i++) {
			if (ended[i])
				continue;
			current = i;
			threadIdx = {i % blockDim.x, i / blockDim.x, 0};
			swapcontext(&block, &thread[i]);
			left = left || !ended[i];
		}
		count = counted;
		counted = 0;
	}
}

template <typename Second> struct call {
	static void (*kernel)(Input, Second, parameters, void *);
	static void **given;
	static void go() { kernel(*(Input *)given[0], *(Second *)given[1], *(parameters *)given[2], *(void **)given[3]); }
};
template <typename Second> void (*call<Second>::kernel)(Input, Second, parameters, void *);
template <typename Second> void **call<Second>::given;

template <typename Second> static void run_grid(void (*kernel)(Input, Second, parameters, void *), void **given)
{
	call<Second>::kernel = kernel;
	call<Second>::given = given;
	body = call<Second>::go;
	for (unsigned y = 0; y < gridDim.y; y++)
		for (unsigned x = 0; x < gridDim.x; x++) {
			blockIdx = {x, y, 0};
			run_block();
		}
}
}

extern "C" void run_kernel(void *kernel, void **given, unsigned width, unsigned height)
{
	gridDim = {width, height, 1};
#if RESULTS
	cpu::run_grid((void (*)(Input, Results *, parameters, void *))kernel, given);
#else
	cpu::run_grid((void (*)(Input, Output, parameters, void *))kernel, given);
#endif
}
