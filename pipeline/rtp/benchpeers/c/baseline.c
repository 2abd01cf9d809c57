// SPDX-License-Identifier: Apache-2.0
/* The measure of what is possible: sends frames of raw 1080p in C with UDP_SEGMENT, as plainly as can be.
 * usage: baseline gather|ready|zerocopy SEGMENTS FRAMES ADDRESS PORT [huge]
 * With huge the frames lie in pages of 2 MB, as those of tegracast do, from which the kernel copies faster. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { LINES = 1080, PER_LINE = 3, SIZE = 1280, HEADER = 20, PITCH = HEADER + SIZE, PACKETS = LINES * PER_LINE };
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint32_t sent, done; /* calls with MSG_ZEROCOPY */

static void reap(int fd)
{
	char control[128];
	struct msghdr m = { .msg_control = control, .msg_controllen = sizeof(control) };

	while (recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0) {
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		struct sock_extended_err *e = c ? (void *)CMSG_DATA(c) : NULL;

		if (e && e->ee_origin == SO_EE_ORIGIN_ZEROCOPY)
			done += e->ee_data - e->ee_info + 1;
		m.msg_controllen = sizeof(control);
	}
}

static void header(uint8_t *h, unsigned frame, int i)
{
	uint32_t seq = frame * PACKETS + i, ts = frame * 1500;
	uint16_t at = i % PER_LINE * SIZE / 2;

	memcpy(h, (uint8_t[]){ 0x80, 96 | (i == PACKETS - 1) << 7, seq >> 8, seq, ts >> 24, ts >> 16, ts >> 8, ts,
			       1, 2, 3, 4, seq >> 24, seq >> 16, SIZE >> 8, SIZE & 255, i / PER_LINE >> 8, i / PER_LINE,
			       at >> 8, at }, HEADER);
}

int main(int argc, char **argv)
{
	if (argc < 6 || argc > 7)
		return fprintf(stderr, "usage: %s gather|ready|zerocopy SEGMENTS FRAMES ADDRESS PORT [huge]\n", argv[0]), 2;
	int gather = !strcmp(argv[1], "gather"), zero = !strcmp(argv[1], "zerocopy");
	int segments = atoi(argv[2]), frames = atoi(argv[3]), one = 1, room = 8 << 20;
	uint8_t *ready = mmap(NULL, 3 * PACKETS * PITCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static uint8_t heads[PACKETS][HEADER];
	static struct iovec iov[2 * PACKETS];
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[5])) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	if (fd < 0 || ready == MAP_FAILED || inet_pton(AF_INET, argv[4], &to.sin_addr) != 1)
		die("setup");
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (connect(fd, (void *)&to, sizeof(to)) || (zero && setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one))))
		die("socket");
	if (argc > 6 && !strcmp(argv[6], "huge") && madvise(ready, 3 * PACKETS * PITCH, MADV_HUGEPAGE))
		die("madvise");
	memset(ready, 0x55, 3 * PACKETS * PITCH);
	for (int frame = 0; frame < frames; frame++) {
		uint8_t *pixels = ready + frame % 3 * PACKETS * PITCH;

		for (int i = 0; i < PACKETS; i++) {
			header(gather ? heads[i] : pixels + i * PITCH, frame, i);
			iov[2 * i] = (struct iovec){ heads[i], HEADER };
			iov[2 * i + 1] = (struct iovec){ pixels + i * SIZE, SIZE };
		}
		for (int i = 0, n; i < PACKETS; i += n) {
			n = i + segments < PACKETS ? segments : PACKETS - i;
			struct iovec whole = { pixels + i * PITCH, (size_t)n * PITCH };
			union { struct cmsghdr align; char b[CMSG_SPACE(sizeof(uint16_t))]; } c = { 0 };
			struct msghdr m = { .msg_iov = gather ? iov + 2 * i : &whole, .msg_iovlen = gather ? 2 * n : 1,
					    .msg_control = &c, .msg_controllen = sizeof(c) };

			*CMSG_FIRSTHDR(&m) = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(uint16_t)), .cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT };
			*(uint16_t *)CMSG_DATA(CMSG_FIRSTHDR(&m)) = PITCH;
			while (sendmsg(fd, &m, MSG_DONTWAIT | (zero ? MSG_ZEROCOPY : 0)) < 0) {
				if (errno != EAGAIN && errno != ENOBUFS)
					die("sendmsg");
				if (zero)
					reap(fd);
				poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, 1);
			}
			sent += zero;
		}
		if (zero)
			reap(fd);
	}
	for (int i = 0; zero && done != sent && i < 1000; i++) {
		poll(&(struct pollfd){ .fd = fd }, 1, 1);
		reap(fd);
	}
	return 0;
}
