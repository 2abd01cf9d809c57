/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tegracast_share.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#endif
#ifndef F_SEAL_SHRINK
#define F_SEAL_SHRINK 2
#endif

enum { SUBSCRIBE = 1, READY = 2, ANSWER = 3, WELCOME = 17, FRAME = 18, BYE = 19 };
enum { VERSION = 1, VERSION_FLAGS = 2, ANSWERS = 1, GROUPS = 2 };
enum { ANSWER_SIZE = 32, WELCOME_SIZE = 48, FRAME_SIZE = 152, GROUP_SIZE = 8, BYE_SIZE = 8, MAX_RESULTS = 16 << 10, MAX_NAME = 64 };

struct slot {
	const uint8_t *bytes;
	size_t length;
};

struct tgsh {
	int fd;
	uint32_t policy;
	uint32_t flags; /* of the subscription */
	uint32_t holds, held;
	int asked; /* for a frame that has not come */
	struct slot slots[TGSH_MAX_SLOTS];
	char name[MAX_NAME + 1];
	char reason[513];
	uint8_t text[FRAME_SIZE + GROUP_SIZE + MAX_RESULTS + 1];
};

static void put32(uint8_t *to, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		to[i] = v >> 8 * i;
}

static void put64(uint8_t *to, uint64_t v)
{
	put32(to, (uint32_t)v);
	put32(to + 4, v >> 32);
}

static uint32_t get32(const uint8_t *from)
{
	return from[0] | from[1] << 8 | from[2] << 16 | (uint32_t)from[3] << 24;
}

static uint64_t get64(const uint8_t *from)
{
	return get32(from) | (uint64_t)get32(from + 4) << 32;
}

/* Receives a message. *fd is a descriptor that came with it and belongs to the caller, or -1. It returns the length or an error. */
static int receive(struct tgsh *s, int *fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} rights;
	struct iovec part = {s->text, sizeof(s->text)};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = rights.room, .msg_controllen = sizeof(rights.room)};
	struct cmsghdr *c;
	ssize_t n;

	*fd = -1;
	n = recvmsg(s->fd, &m, MSG_CMSG_CLOEXEC);
	if (n <= 0)
		return n == 0 || errno == ECONNRESET ? TGSH_ENDED : -errno;
	for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
			memcpy(fd, CMSG_DATA(c), sizeof(int));
	if (n >= BYE_SIZE && n < BYE_SIZE + (ssize_t)sizeof(s->reason) && get32(s->text) == BYE) {
		memcpy(s->reason, s->text + BYE_SIZE, n - BYE_SIZE);
		s->reason[n - BYE_SIZE] = 0;
		n = TGSH_ENDED;
	} else if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || n < 4) {
		n = TGSH_BROKEN;
	}
	if (n < 0 && *fd >= 0) {
		close(*fd);
		*fd = -1;
	}
	return n;
}

/* Sends a message of two parts. If the program has ended the connection, tgsh_reason says why. */
static int tell_parts(struct tgsh *s, const void *head, size_t size, const void *rest, size_t length)
{
	struct iovec parts[] = {{(void *)head, size}, {(void *)rest, length}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
	ssize_t n;
	int err, fd;

	do
		n = sendmsg(s->fd, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)(size + length))
		return 0;
	if (errno != EPIPE && errno != ECONNRESET)
		return -errno;
	do { /* what was sent before the end, up to the reason */
		err = receive(s, &fd);
		if (fd >= 0)
			close(fd);
	} while (err >= 0 || err == -EINTR);
	return TGSH_ENDED;
}

static int tell(struct tgsh *s, const uint8_t *text, size_t length)
{
	return tell_parts(s, text, length, NULL, 0);
}

static int tell_ready(struct tgsh *s, uint32_t more, uint64_t lease)
{
	uint8_t text[16];

	put32(text, READY);
	put32(text + 4, more);
	put64(text + 8, lease);
	return tell(s, text, sizeof(text));
}

static int begin(struct tgsh *s, const char *path, uint32_t every)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	uint8_t text[24];
	int n, fd;

	if (strlen(path) >= sizeof(a.sun_path))
		return -ENAMETOOLONG;
	strcpy(a.sun_path, path);
	s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s->fd < 0 || connect(s->fd, (struct sockaddr *)&a, sizeof(a)))
		return -errno;
	put32(text, SUBSCRIBE);
	memcpy(text + 4, "TGSH", 4);
	put32(text + 8, s->flags ? VERSION_FLAGS : VERSION);
	put32(text + 12, s->policy);
	put32(text + 16, every);
	put32(text + 20, s->flags);
	n = tell(s, text, s->flags ? 24 : 20);
	if (n && n != TGSH_ENDED)
		return n;
	do
		n = receive(s, &fd);
	while (n == -EINTR);
	if (fd >= 0)
		close(fd);
	if (n < 0)
		return n;
	s->holds = n < WELCOME_SIZE ? 0 : get32(s->text + 8);
	if (!s->holds || get32(s->text) != WELCOME || get32(s->text + 4) != VERSION || n - WELCOME_SIZE > MAX_NAME)
		return TGSH_BROKEN;
	memcpy(s->name, s->text + WELCOME_SIZE, n - WELCOME_SIZE);
	return s->policy == TGSH_BLOCK ? tell_ready(s, s->holds, 0) : 0;
}

int tgsh_open(struct tgsh **out, const char *path, unsigned policy, uint32_t every, char *reason, size_t room)
{
	struct tgsh *s = calloc(1, sizeof(*s));
	int err;

	*out = NULL;
	if (reason && room)
		*reason = 0;
	if (!s)
		return -ENOMEM;
	s->fd = -1;
	s->policy = policy & ~(TGSH_RESULTS | TGSH_GROUPS);
	s->flags = (policy & TGSH_RESULTS ? ANSWERS : 0) | (policy & TGSH_GROUPS ? GROUPS : 0);
	err = begin(s, path, every);
	if (!err) {
		*out = s;
		return 0;
	}
	if (reason && room) {
		strncpy(reason, s->reason, room - 1);
		reason[room - 1] = 0;
	}
	tgsh_close(s);
	return err;
}

/* Maps a slot's file to read, and closes its descriptor. The file must be sealed: the memory cannot vanish. */
static int keep(struct slot *slot, int fd)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS), err = 0;
	void *p;

	if (slot->bytes || seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) || st.st_size <= 0) {
		err = TGSH_BROKEN;
	} else {
		p = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED)
			err = -errno;
		else
			*slot = (struct slot){p, st.st_size};
	}
	close(fd);
	return err;
}

/* Reads a frame's header of so many bytes. */
static int parse(struct tgsh *s, struct tgsh_frame *f, int n, int fd)
{
	const uint8_t *t = s->text;
	int64_t *times[] = {&f->exposure_start, &f->exposure_end, &f->uncertainty, &f->captured, &f->processed, &f->replayed, &f->sent};
	struct slot *slot;
	uint64_t offset;
	int size = FRAME_SIZE + (s->flags & GROUPS ? GROUP_SIZE : 0), err;

	if (n < size || get32(t) != FRAME || get32(t + 4) >= TGSH_MAX_SLOTS || get32(t + 128) != (uint32_t)(n - size)) {
		if (fd >= 0)
			close(fd);
		return TGSH_BROKEN;
	}
	slot = &s->slots[get32(t + 4)];
	err = fd < 0 ? 0 : keep(slot, fd);
	if (err)
		return err;
	*f = (struct tgsh_frame){
		.lease = get64(t + 8), .sequence = get64(t + 16), .length = get64(t + 32), .pixel = get32(t + 40), .width = get32(t + 44),
		.height = get32(t + 48), .stride = get32(t + 52), .color = get32(t + 56), .flags = get32(t + 120), .crc = get32(t + 124),
		.results = (const char *)t + size, .results_length = get32(t + 128), .offered = get64(t + 136), .lost = get64(t + 144),
		.group = s->flags & GROUPS ? get64(t + FRAME_SIZE) : 0,
		.slot = get32(t + 4), .memory = slot->bytes, .memory_length = slot->length,
	};
	for (int i = 0; i < 7; i++)
		*times[i] = (int64_t)get64(t + 64 + 8 * i);
	offset = get64(t + 24);
	if (offset > slot->length || f->length > slot->length - offset || (uint64_t)f->stride * f->height > f->length)
		return TGSH_BROKEN;
	f->bytes = slot->bytes + offset;
	return 1;
}

int tgsh_next(struct tgsh *s, struct tgsh_frame *f, int milliseconds)
{
	struct pollfd p = {.fd = s->fd, .events = POLLIN};
	int n, fd;

	if (s->held == s->holds)
		return TGSH_HELD;
	if (s->policy == TGSH_LATEST && !s->asked) {
		n = tell_ready(s, 1, 0);
		if (n)
			return n;
		s->asked = 1;
	}
	n = poll(&p, 1, milliseconds); /* which a signal ends, also where recvmsg would go on */
	if (n <= 0)
		return n == 0 || errno == EINTR ? 0 : -errno;
	n = receive(s, &fd);
	if (n < 0)
		return n == -EINTR ? 0 : n;
	n = parse(s, f, n, fd);
	if (n == 1) {
		s->asked = 0;
		s->held++;
	}
	return n;
}

int tgsh_respond(struct tgsh *s, const struct tgsh_frame *f, const char *json, size_t length, int64_t began, int64_t ended)
{
	uint8_t head[ANSWER_SIZE];

	if (length > TGSH_MAX_ANSWER)
		return -EMSGSIZE;
	put32(head, ANSWER);
	put32(head + 4, (uint32_t)length);
	put64(head + 8, f->lease);
	put64(head + 16, (uint64_t)began);
	put64(head + 24, (uint64_t)ended);
	return tell_parts(s, head, sizeof(head), json, length);
}

int tgsh_release(struct tgsh *s, const struct tgsh_frame *f)
{
	s->held--;
	return tell_ready(s, s->policy == TGSH_BLOCK, f->lease);
}

const char *tgsh_name(const struct tgsh *s) { return s->name; }

const char *tgsh_reason(const struct tgsh *s) { return s->reason; }

int tgsh_fd(const struct tgsh *s) { return s->fd; }

void tgsh_close(struct tgsh *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	for (int i = 0; i < TGSH_MAX_SLOTS; i++)
		if (s->slots[i].bytes)
			munmap((void *)s->slots[i].bytes, s->slots[i].length);
	free(s);
}
