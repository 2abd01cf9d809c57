// SPDX-License-Identifier: Apache-2.0
/* A stand-in for libnvjpeg: names and shapes of the functions that are used, and a file of a few bytes. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct image { unsigned char *channel[4]; size_t pitch[4]; };
static int made, encoded;

#ifndef ANOTHER
int nvjpegCreateEx(int backend, void *device, void *pinned, unsigned flags, void **handle)
{
	return *handle = &made, made++, backend || device || pinned || flags;
}
#endif
int nvjpegDestroy(void *handle) { return handle == &made ? made--, 0 : 2; }
int nvjpegEncoderStateCreate(void *handle, void **state, void *stream) { return *state = &encoded, handle == &made ? 0 : 2; }
int nvjpegEncoderStateDestroy(void *state) { return state == &encoded ? 0 : 2; }
int nvjpegEncoderParamsCreate(void *handle, void **params, void *stream) { return *params = &made, handle == &made ? 0 : 2; }
int nvjpegEncoderParamsDestroy(void *params) { return params == &made ? 0 : 2; }
int nvjpegEncoderParamsSetQuality(void *params, int quality, void *stream) { return quality >= 1 && quality <= 100 ? 0 : 2; }
int nvjpegEncoderParamsSetSamplingFactors(void *params, int factors, void *stream) { return factors == 2 ? 0 : 2; }
int nvjpegEncodeYUV(void *handle, void *state, void *params, const struct image *in, int chroma, int width, int height, void *stream)
{
	if (chroma != 2 || in->pitch[0] < (size_t)width || in->pitch[1] < (size_t)width / 2 || in->channel[3])
		return 2;
	return encoded = in->channel[0][0] + in->channel[1][0] + in->channel[2][0], height < 0;
}
int nvjpegEncodeRetrieveBitstream(void *handle, void *state, unsigned char *data, size_t *length, void *stream)
{
	if (data)
		memset(data, encoded, *length);
	else
		*length = 8;
	return 0;
}
