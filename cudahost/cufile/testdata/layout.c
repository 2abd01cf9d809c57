// SPDX-License-Identifier: Apache-2.0
/* Prints the sizes and places of what package cufile passes to libcufile, as the released cufile.h has them. */
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <sys/types.h>

#ifndef CUDA_VERSION /* instead of cuda.h */
#define CUDA_VERSION 12000
typedef int CUresult;
typedef struct CUstream_st *CUstream;
#endif
#include HEADER

#define AT(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))
#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))

int main(void)
{
	SIZE(CUfileError_t);
	SIZE(CUfileDescr_t);
	AT(CUfileDescr_t, handle);
	AT(CUfileDescr_t, fs_ops);
	SIZE(CUfileDrvProps_t);
	AT(CUfileDrvProps_t, nvfs.max_direct_io_size);
	AT(CUfileDrvProps_t, nvfs.dcontrolflags);
	AT(CUfileDrvProps_t, fflags);
	return 0;
}
