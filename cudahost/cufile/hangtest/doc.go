// SPDX-License-Identifier: Apache-2.0

// Package hangtest provides a disk for tests that stops responding, as if its cable had been pulled or its server had
// gone. It is a FUSE file system over a folder (Documentation/filesystems/fuse.rst of Linux), served by a separate
// process. A process cannot serve its own disk: threads that wait for the disk cannot be killed, so they would keep the
// server alive. The disk does not show O_DIRECT, or a disk that loses what was written (docs/stand-ins.md).
package hangtest
