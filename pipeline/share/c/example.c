/* SPDX-License-Identifier: Apache-2.0 */
/* Takes so many frames of an output with share, checks that a byte of each can be read, and prints them: example SOCKET [COUNT]. */
#include "tegracast_share.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	char reason[256];
	struct tgsh *s;
	struct tgsh_frame f;
	int left = argc > 2 ? atoi(argv[2]) : 10, err = tgsh_open(&s, argc > 1 ? argv[1] : "", TGSH_BLOCK | TGSH_GROUPS, 1, reason, sizeof(reason));

	for (; !err && left > 0; left--) {
		if ((err = tgsh_next(s, &f, -1)) != 1)
			break;
		printf("%llu of %llu %ux%u first %u last %u lost %llu %.*s\n", (unsigned long long)f.sequence,
		       (unsigned long long)f.group, f.width, f.height, f.bytes[0], f.bytes[f.length - 1],
		       (unsigned long long)f.lost, (int)f.results_length, f.results);
		err = tgsh_release(s, &f);
	}
	if (err)
		fprintf(stderr, "error %d %s\n", err, s ? tgsh_reason(s) : reason);
	tgsh_close(s);
	return err != 0;
}
