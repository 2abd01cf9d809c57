/* Behind the kernels: runs a grid. */
static void (*kernel_)(const Args);
static const Args *args_;

static void leave(barrier &b)
{
	b.alive--;
	open_if_all(b);
}

static void run_thread()
{
	kernel_(*args_);
	threads_[current_].ended = true;
	leave(warps_[current_ / WARP]);
	leave(block_);
	swapcontext(&threads_[current_].context, &scheduler_);
}

static void run_block()
{
	block_ = {WARP * WARPS, 0, 0};
	for (barrier &w : warps_)
		w = {WARP, 0, 0};
	for (int i = 0; i < WARP * WARPS; i++) {
		auto &t = threads_[i];
		if (!t.stack)
			t.stack = (char *)malloc(STACK);
		t.index = {(unsigned)i % WARP, (unsigned)i / WARP, 0};
		t.ended = false;
		getcontext(&t.context);
		t.context.uc_stack.ss_sp = t.stack;
		t.context.uc_stack.ss_size = STACK;
		t.context.uc_link = &scheduler_;
		makecontext(&t.context, run_thread, 0);
	}
	while (block_.alive > 0)
		for (current_ = 0; current_ < WARP * WARPS; current_++)
			if (!threads_[current_].ended) {
				threadIdx = threads_[current_].index;
				swapcontext(&scheduler_, &threads_[current_].context);
			}
}

extern "C" void run_kernel(void (*kernel)(const Args), void **parameters, unsigned width, unsigned height)
{
	kernel_ = kernel;
	args_ = (const Args *)parameters[0];
	gridDim = {width, height, 1};
	for (unsigned y = 0; y < height; y++)
		for (unsigned x = 0; x < width; x++) {
			blockIdx = {x, y, 0};
			run_block();
		}
}
