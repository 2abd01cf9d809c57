/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of tegracast in another process, without a copy (docs/share.md). It needs Linux and a C library, and nothing else. */
#ifndef TEGRACAST_SHARE_H
#define TEGRACAST_SHARE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A connection. One thread calls tgsh_next; frames are released by the same one. */
struct tgsh;

enum tgsh_policy {
	TGSH_LATEST = 0, /* tgsh_next returns the newest frame */
	TGSH_BLOCK = 1,  /* each frame, as long as the process keeps up: those that come while it holds all that it may are lost */
	TGSH_RESULTS = 1 << 8, /* added to one of these: the socket is that of an external stage, and the process calls tgsh_respond */
	TGSH_GROUPS = 1 << 9, /* added to one of these: frames have group; a program older than that refuses it */
};

enum {
	TGSH_MAX_SLOTS = 1 << 10,    /* the number of a slot is less */
	TGSH_MAX_ANSWER = 48 << 10, /* bytes of the results of a frame */
};

enum tgsh_flags {
	TGSH_PADDED = 1 << 0,      /* the sensor delivered less than a frame, and the FPGA filled the rest */
	TGSH_UNVERIFIED = 1 << 1,  /* no checksum proves that the bytes are the sensor's */
	TGSH_CRC = 1 << 16,        /* crc is there */
	TGSH_NO_RESULTS = 1 << 17, /* there are results, too many for a message */
};

/* What tgsh_next and tgsh_open fail with, besides negative values of errno. */
enum tgsh_error {
	TGSH_ENDED = -1001,  /* the program has ended the connection; tgsh_reason says why */
	TGSH_BROKEN = -1002, /* a message that cannot be */
	TGSH_HELD = -1003,   /* as many frames are held as may be: release one */
};

/* A frame, to read until it is released. Times are in ns since 1970; 0: not known. */
struct tgsh_frame {
	const uint8_t *bytes;
	uint64_t length;
	uint32_t pixel; /* V4L2's four characters, the first one lowest */
	uint32_t width, height;
	uint32_t stride; /* bytes from one line of the first plane to the next */
	uint32_t color;  /* 0 none, 1 BT.709 limited, 2 BT.601 full, 3 BT.709 full, 4 BT.601 limited */
	uint32_t flags;
	uint32_t crc; /* CRC-32C of bytes, where flags has TGSH_CRC */
	uint64_t sequence;
	int64_t exposure_start, exposure_end, uncertainty, captured, processed, replayed, sent;
	uint64_t offered, lost; /* frames that this process wanted, and those that it was not ready for */
	const char *results;    /* JSON, without a zero at its end, until the next tgsh_next */
	uint32_t results_length;
	uint64_t lease;
	uint64_t group;        /* number of the frame among those of several sources that belong together; 0: none, or without TGSH_GROUPS */
	uint32_t slot;         /* where the frame lies */
	const uint8_t *memory; /* the whole slot, mapped until tgsh_close, with bytes in it */
	uint64_t memory_length;
};

/* Connects and subscribes to every n-th frame. policy is one of enum tgsh_policy, with TGSH_RESULTS added to return results, and TGSH_GROUPS to have group. It returns 0, and a connection that tgsh_close ends, or an error; then *out is NULL
 * and, with TGSH_ENDED, reason has what the program says. reason may be NULL. */
int tgsh_open(struct tgsh **out, const char *path, unsigned policy, uint32_t every, char *reason, size_t room);

/* Waits for a frame for so many milliseconds; -1: without end. It returns 1, 0 when no frame came or a signal did,
 * or an error. */
int tgsh_next(struct tgsh *s, struct tgsh_frame *f, int milliseconds);

/* Returns the results of a frame, once and before tgsh_release: length bytes of JSON (docs/inference.md), at most TGSH_MAX_ANSWER. began and
 * ended are when the work on it began and ended, in ns since 1970; 0: not known. It returns 0 or an error. */
int tgsh_respond(struct tgsh *s, const struct tgsh_frame *f, const char *json, size_t length, int64_t began, int64_t ended);

/* Gives a frame back, whose bytes must not be read any more. It returns 0 or an error. */
int tgsh_release(struct tgsh *s, const struct tgsh_frame *f);

/* The name of the output. */
const char *tgsh_name(const struct tgsh *s);

/* Why the program has ended the connection. */
const char *tgsh_reason(const struct tgsh *s);

/* A descriptor for poll(2): it is readable when tgsh_next has something to read. With TGSH_LATEST tgsh_next asks for the frame. */
int tgsh_fd(const struct tgsh *s);

/* Ends the connection, which gives all frames back, and frees it. */
void tgsh_close(struct tgsh *s);

#ifdef __cplusplus
}
#endif
#endif
