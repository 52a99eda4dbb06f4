/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A thread that reads the sockets while much comes, so that the loop has the time to reduce and to send: half of what the
 * loop takes is the kernel's copy out of a socket. The sockets are read by one of the two at a time. The loop hands them
 * over when much is there at once, and gets them back when nothing has come for a while; so what comes seldom wakes one
 * thread, as it does without this one.
 */
#ifndef GRADLANE_READER_H
#define GRADLANE_READER_H

#include <stdbool.h>

#include "io/datagrams.h"

typedef struct reader reader;

/* `sockets`: an epoll set whose events have the descriptors; `buffers`: the loop's. The thread runs, and waits. NULL: memory or
 * threads are out. */
reader *reader_new(int sockets, buffers *buffers);
/* The thread ends; what it has read and nobody has taken is lost. */
void reader_free(reader *r);

/* Of the loop. */
void reader_hand_over(reader *r);
bool reader_reads(const reader *r);      /* whether it has the sockets, or what it has read is not all taken */
int reader_ready(const reader *r);       /* readable when there is something, after reader_sleeps */
bool reader_sleeps(reader *r);           /* the loop is about to sleep; false: there is something already */
/* Hands on a batch of what was read. Returns whether there is more. */
bool reader_take(reader *r, take_train *take, void *context);

/* After this returns, a socket that was taken out of the set is not read any more. From any thread. */
void reader_let_go(reader *r);

#endif
