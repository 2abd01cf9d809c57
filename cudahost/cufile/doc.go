// SPDX-License-Identifier: Apache-2.0

// Package cufile moves data between files and memory that a GPU can access, with NVIDIA's cuFile API (GPUDirect Storage,
// "cuFile API Reference"; sections in comments refer to that document). It does not know frames.
//
// It has two back ends: NVIDIA's libcufile, opened at run time, and the compatibility mode of §2.3, which works
// everywhere because it needs neither CUDA nor a driver: io_uring with registered files and buffers, else preadv2 and
// pwritev2. On a Jetson, memory from cudaHostAlloc is the host's memory, so that files are read into it and written
// from it without a bounce buffer.
//
// # Transfers
//
// Transfers are made in pieces of max_direct_io_size_kb: by io_uring, with registered files and buffers from Linux 5.19
// on and without registration from 5.6 on, else by preadv2 and pwritev2 in up to 16 threads.
//   - With O_DIRECT whole pages go direct. The rest, unaligned transfers, and a direct transfer that the kernel refuses
//     (EINVAL, EOPNOTSUPP, EFAULT) go through the page cache.
//   - A read at the end of a file may change the memory behind the bytes that it returns.
//   - Any error of the file in a CUDA stream is EIO. Data is on the disk only after File.Sync.
//   - RegisterBuffer pins memory until DeregisterBuffer or Close. Deregister it before you free it.
//
// libcufile is used if Config.Library names it (libcufile.so.0; CUDA 12.2 or newer), or with Config.Optional if it is
// installed and accepts the file system. It also transfers to and from GPU memory. Both back ends refuse the same
// arguments.
//
// # Calls that only the document asks for
//
// No program of this project calls these; they complete the document's API. The case of TestConformance that shows each
// one follows it.
//   - Driver.Properties: 002.1.3.0
//   - Driver.SetPollMode: 002.1.5.0
//   - Driver.SetMaxDirectIOSize: 002.1.6.0
//   - Driver.SetMaxCacheSize: 002.1.7.0
//   - Driver.SetMaxPinnedMemSize: 002.1.8.0
//   - File.Write: 002.1.12.bytes
//   - File.ReadAsync, Async.Result: 002.1.15.0
//   - File.WriteAsync: 002.1.16.0
//   - Batch.Cancel: 002.1.19.canceled
//   - Driver.RegisterStream, Driver.DeregisterStream: 002.1.15.5022
//
// # Implicit open
//
// In NVIDIA's library, the first call that needs the driver opens it (§2.1), and the end of the process closes it. Here
// a Driver is opened by Open alone, and other calls are its methods: a program that has no Driver cannot call them, the
// errors of opening are Open's own, and whoever has opened a Driver closes it.
//
// # libcufile
//
// libcufile 1.15.1 (CUDA 13.0, H100) differs from compatibility mode:
//   - It asks udev for the file system: without /run/udev (containers), and on tmpfs, registering a file fails with 5027.
//   - It counts a second open, and the first close closes nothing; here that is a second driver.
//   - max_direct_io_size_kb is 64, or multiples of 1024 up to 16384; else 5003.
//   - A limit of pinned memory must be at least 64 KiB; "no limit" is refused (5022), so 32 GiB is set instead. Its
//     properties always show its defaults.
//   - A wrong open mode is 5019 (reading) or EIO (writing); here EBADF, in a stream EIO. No descriptor left is 5027 instead of
//     5031.
//   - In a stream, a range beyond registered memory is 5016 instead of 5017, and a fixed size is read when the stream comes to
//     it, not when submitted. Registered streams lose later transfers, so the library is not told of registrations.
//   - Some unaligned writes with O_DIRECT fail with EIO. Batches return wrong data or hang, so single calls are used
//     for them.
//
// # Contradictions
//
// The document contradicts itself in these places:
//   - 002.7.2: A second open is an error in §2.1 and a success in §4.1.1. The library succeeds and counts it; here it
//     is a second driver.
//   - 002.7.3: cuFileHandleDeregister takes a handle and returns nothing in §3.4; it takes a pointer and returns an
//     error in §4.2.2. The library takes a handle and returns nothing; here an error is returned.
//   - 002.7.4: The call is cuFileGetDriverProperties in §3.2 and cuFileDriverGetProperties in §4.1.3. The library has
//     the latter; here it is Driver.Properties.
//   - 002.7.5: cuFileReadAsync takes pointers in §3.6 and values in §4.4.1. The library takes pointers and has a
//     ssize_t as the result; here it is Async.
//   - 002.7.6: The statuses of a batch include CANCELED in §3.1.1 and not in §3.1.3. The library and this package have
//     it, as bits 1 to 0x40.
//   - 002.7.7: allow_compat_mode is true in §2.3 and false in §4.1.8. It is true in the library and here.
//   - 002.7.8: The key is denylist in the text and blacklist in the schema. The library knows denylist, this package
//     both.
//   - 002.7.9: The schema has use_poll_mode and poll_mode_max_size_kb, §4.1.4 poll_mode and poll_max_size_kb. The
//     library knows the schema's keys, this package all.
//   - 002.7.10: The limit of pinned memory is 32 GB in §4.1.8 and the device's in §4.1.7. It is 32 GB in the library
//     and here.
//   - 002.7.11: Status flag 0 is LUSTRE in §3.1.1 and EXASCALER in §4.1.3. It is LUSTRE in the library; here it does
//     not exist.
//   - 002.7.12: The text of §4.1.3 has max_device_pinned_mem_size, its struct max_pinned_memory_size. The library has
//     the former; here it is Properties.MaxPinned.
//   - 002.7.13: A batch is an int in §3.7 and §4.5. The library has a handle from cuFileBatchIOSetUp; here it is Batch.
package cufile
