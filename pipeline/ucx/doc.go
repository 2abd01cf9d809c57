// SPDX-License-Identifier: Apache-2.0

// Package ucx sends and receives active messages by UCX, the library of RDMA networks, TCP and shared memory (docs/ucx.md).
// It opens libucp when a context is opened and needs no cgo. It is the library's objects, and no protocol.
//
// # Objects
//
// A [Context] is UCX in this process. It has any number of [Worker]s, and [Memory] that is known to the network. A worker has
// [Listener]s, and [Endpoint]s, which are its connections. An endpoint sends messages, and a [Message] is one that has arrived.
// Each object is closed before the one it was made from. A Close that finds something open closes it, too, and returns an error
// that names it.
//
// # Goroutines
//
// All methods may be called by any goroutine at any time. A worker has one goroutine, on a thread of its own, which makes all
// progress and calls all functions that were given to the worker and its objects. It sleeps when nothing happens. Such a
// function must return soon, because nothing else happens on the worker meanwhile. It may call every method except
// [Worker.Close], [Endpoint.Close] and [Context.Close], which wait for that goroutine.
package ucx
