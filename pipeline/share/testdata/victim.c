/* SPDX-License-Identifier: Apache-2.0 */
/* Takes frames, holds as many as it may, and gives one back when it may hold no more, until it is killed: victim SOCKET POLICY. */
#include "../c/tegracast_share.h"

#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct tgsh *s;
	struct tgsh_frame held[16], f;
	int n = 0, err;

	if (argc != 3 || tgsh_open(&s, argv[1], atoi(argv[2]), 1, NULL, 0))
		return 1;
	for (;;) {
		err = tgsh_next(s, &f, -1);
		if (err == TGSH_HELD) {
			if (tgsh_release(s, &held[0]))
				return 2;
			for (int i = 1; i < n; i++)
				held[i - 1] = held[i];
			n--;
		} else if (err == 1 && f.bytes[0] == f.bytes[f.length - 1]) {
			held[n++] = f;
		} else {
			return 3;
		}
	}
}
