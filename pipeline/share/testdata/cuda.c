/* SPDX-License-Identifier: Apache-2.0 */
/* Takes so many frames as docs/share.md shows for CUDA, and prints whether the device finds each where it is: cuda SOCKET COUNT LIBCUDA,
 * which it is linked with. */
#include "../c/tegracast_share.h"

#include <stdio.h>
#include <stdlib.h>

/* Of cuda.h. */
typedef unsigned long long CUdeviceptr;
enum { CU_MEMHOSTREGISTER_DEVICEMAP = 0x02, CU_MEMHOSTREGISTER_READ_ONLY = 0x08 };
int cuMemHostRegister_v2(void *p, size_t length, unsigned flags);
int cuMemHostGetDevicePointer_v2(CUdeviceptr *to, void *p, unsigned flags);
int cuMemHostUnregister(void *p);

int main(int argc, char **argv)
{
	static CUdeviceptr slots[TGSH_MAX_SLOTS];
	static void *memory[TGSH_MAX_SLOTS];
	struct tgsh *s;
	struct tgsh_frame f;

	if (argc != 4 || tgsh_open(&s, argv[1], TGSH_BLOCK, 1, NULL, 0))
		return 1;
	for (int left = atoi(argv[2]); left > 0; left--) {
		if (tgsh_next(s, &f, -1) != 1)
			return 2;
		if (!slots[f.slot]) {
			memory[f.slot] = (void *)f.memory;
			if (cuMemHostRegister_v2(memory[f.slot], f.memory_length, CU_MEMHOSTREGISTER_READ_ONLY | CU_MEMHOSTREGISTER_DEVICEMAP) ||
			    cuMemHostGetDevicePointer_v2(&slots[f.slot], memory[f.slot], 0))
				return 3;
			printf("slot\n");
		}
		CUdeviceptr bytes = slots[f.slot] + (f.bytes - f.memory);
		printf("frame %llu %d\n", (unsigned long long)f.sequence, *(const uint8_t *)bytes);
		if (tgsh_release(s, &f))
			return 4;
	}
	for (int i = 0; i < TGSH_MAX_SLOTS; i++)
		if (memory[i] && cuMemHostUnregister(memory[i]))
			return 5;
	tgsh_close(s);
	return 0;
}
