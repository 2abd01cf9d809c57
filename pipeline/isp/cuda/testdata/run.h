/* Behind the kernels: runs a kernel's grid. */
extern "C" void run_kernel(void (*kernel)(const Args), void **parameters, unsigned width, unsigned height)
{
	gridDim = {width, height, 1};
	for (unsigned y = 0; y < height; y++)
		for (unsigned x = 0; x < width; x++) {
			blockIdx = {x, y, 0};
			kernel(*(const Args *)parameters[0]);
		}
}
