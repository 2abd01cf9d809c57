/* SPDX-License-Identifier: Apache-2.0 */
/* Takes frames until the connection ends, and reads their numbers: reader SOCKET LINES. So many lines of each frame, the first and the
 * last ones, begin with the frame's number; 0: the first byte is read alone. It prints what it has seen, and what memory it has. */
#include "../c/tegracast_share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static long faults(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_minflt + u.ru_majflt;
}

/* A line of /proc/self/status, in kB. */
static long status(const char *name)
{
	char line[256];
	long kb = -1;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			kb = atol(line + strlen(name));
	if (f)
		fclose(f);
	return kb;
}

int main(int argc, char **argv)
{
	struct tgsh *s;
	struct tgsh_frame f;
	unsigned long frames = 0, wrong = 0, gaps = 0, last = 0, lost = 0, sum = 0;
	long early = 0, own = 0, lines = argc > 2 ? atol(argv[2]) : 0;
	int err;

	if (argc != 3 || tgsh_open(&s, argv[1], TGSH_BLOCK, 1, NULL, 0))
		return 1;
	while ((err = tgsh_next(s, &f, -1)) == 1) {
		for (long i = 0; i < lines; i++) {
			uint64_t n, far = f.height - 1 - i;

			memcpy(&n, f.bytes + i * f.stride, sizeof(n));
			wrong += n != f.sequence;
			memcpy(&n, f.bytes + far * f.stride, sizeof(n));
			wrong += n != f.sequence;
		}
		sum += f.bytes[0];
		gaps += last && f.sequence != last + 1;
		last = f.sequence;
		lost = f.lost;
		if (++frames == 60) {
			early = faults();
			own = status("RssAnon:");
		}
		if ((err = tgsh_release(s, &f)))
			break;
	}
	printf("frames %lu last %lu lost %lu gaps %lu wrong %lu faults %ld anonymous %ld then %ld kB shared %ld kB sum %lu end %d\n", frames, last, lost, gaps, wrong,
	       faults() - early, own, status("RssAnon:"), status("RssShmem:"), sum, err);
	tgsh_close(s);
	return err != TGSH_ENDED;
}
