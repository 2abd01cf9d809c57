// SPDX-License-Identifier: Apache-2.0
/* Behind the kernels: runs a grid. */
static void (*kernel_)(const Args);
static const Args *args_;

static void leave(barrier &b)
{
	b.alive--;
	open_if_all(b);
}

static ucontext_t beginning_[WARP * WARPS], origin_;

static void run_thread()
{
	for (;;) { // its stack serves block after block
		if (_setjmp(threads_[current_].context) == 0)
			_longjmp(scheduler_, 1);
		kernel_(*args_);
		threads_[current_].ended = true;
		leave(warps_[current_ / WARP]);
		leave(block_);
	}
}

/* Returns when the thread gives way. */
static void resume(bool first)
{
	if (_setjmp(scheduler_))
		return;
	threadIdx = threads_[current_].index;
	if (first)
		swapcontext(&origin_, &beginning_[current_]);
	_longjmp(threads_[current_].context, 1);
}

static void run_block()
{
	block_ = {WARP * WARPS, 0, 0};
	for (barrier &w : warps_)
		w = {WARP, 0, 0};
	for (current_ = 0; current_ < WARP * WARPS; current_++) {
		auto &t = threads_[current_];
		t.ended = false;
		if (t.stack)
			continue;
		t.stack = (char *)malloc(STACK);
		t.index = {(unsigned)current_ % WARP, (unsigned)current_ / WARP, 0};
		ucontext_t &c = beginning_[current_];
		getcontext(&c);
		c.uc_stack.ss_sp = t.stack;
		c.uc_stack.ss_size = STACK;
		makecontext(&c, run_thread, 0);
		resume(true);
	}
	while (block_.alive > 0)
		for (current_ = 0; current_ < WARP * WARPS; current_++)
			if (!threads_[current_].ended)
				resume(false);
}

/* The parameters of a launch, until it is run. */
extern "C" void *keep_parameters(void **parameters) { return new Args(*(const Args *)parameters[0]); }

extern "C" void run_kernel(void (*kernel)(const Args), void *kept, unsigned width, unsigned height)
{
	kernel_ = kernel;
	args_ = (const Args *)kept;
	gridDim = {width, height, 1};
	for (unsigned y = 0; y < height; y++)
		for (unsigned x = 0; x < width; x++) {
			blockIdx = {x, y, 0};
			run_block();
		}
	delete args_;
}
