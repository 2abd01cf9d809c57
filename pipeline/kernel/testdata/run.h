// SPDX-License-Identifier: Apache-2.0
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

/* The parameters of a launch, until it is run. */
template <typename Second> struct parameters_of {
	Input in;
	Second second;
	parameters values;
	void *state;
};

template <typename Second> struct call {
	static void (*kernel)(Input, Second, parameters, void *);
	static parameters_of<Second> *given;
	static void go() { kernel(given->in, given->second, given->values, given->state); }
};
template <typename Second> void (*call<Second>::kernel)(Input, Second, parameters, void *);
template <typename Second> parameters_of<Second> *call<Second>::given;

template <typename Second> static void run_grid(void (*kernel)(Input, Second, parameters, void *), void *kept)
{
	call<Second>::kernel = kernel;
	call<Second>::given = (parameters_of<Second> *)kept;
	body = call<Second>::go;
	for (unsigned y = 0; y < gridDim.y; y++)
		for (unsigned x = 0; x < gridDim.x; x++) {
			blockIdx = {x, y, 0};
			run_block();
		}
	delete call<Second>::given;
}
}

#if RESULTS
typedef Results *second_parameter;
#else
typedef Output second_parameter;
#endif

extern "C" void *keep_parameters(void **given)
{
	return new cpu::parameters_of<second_parameter>{*(Input *)given[0], *(second_parameter *)given[1], *(parameters *)given[2], *(void **)given[3]};
}

extern "C" void run_kernel(void *kernel, void *kept, unsigned width, unsigned height)
{
	gridDim = {width, height, 1};
	cpu::run_grid((void (*)(Input, second_parameter, parameters, void *))kernel, kept);
}
