// SPDX-License-Identifier: Apache-2.0
/* Behind the kernel of gpu_test.go: runs its grid. */
struct Args {
	const unsigned char *in;
	unsigned *out;
	int n;
};

/* The parameters of a launch, until it is run. */
extern "C" void *keep_parameters(void **given)
{
	return new Args{*(const unsigned char **)given[0], *(unsigned **)given[1], *(int *)given[2]};
}

extern "C" void run_kernel(void (*kernel)(const unsigned char *, unsigned *, int), Args *a, unsigned width, unsigned)
{
	for (blockIdx.x = 0; blockIdx.x < width; blockIdx.x++)
		for (threadIdx.y = 0; threadIdx.y < 8; threadIdx.y++)
			for (threadIdx.x = 0; threadIdx.x < 32; threadIdx.x++)
				kernel(a->in, a->out, a->n);
	delete a;
}
