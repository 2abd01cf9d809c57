// SPDX-License-Identifier: Apache-2.0

// Package ucx sends and receives active messages with UCX, a library for RDMA networks, TCP and shared memory
// (docs/ucx.md). It loads libucp when a context is opened and needs no cgo. It wraps the library's objects and adds no
// protocol.
//
// # Objects
//
// A [Context] is an instance of UCX in this process. It has any number of [Worker]s, and [Memory] that is registered
// with the network. A worker has [Listener]s, and [Endpoint]s, which are its connections. An endpoint sends messages; a
// [Message] is one that has arrived. Every object must be closed before the one it was created from. A Close that finds
// something open closes that too, and returns an error that reports it.
//
// # Goroutines
//
// All methods may be called by any goroutine at any time. A worker has one goroutine, on a dedicated thread, which
// makes progress and calls the functions given to the worker and its objects; only the function given to
// [Endpoint.Send] may also be called by Send itself. The goroutine sleeps when there is nothing to do. These functions
// must return soon, because nothing else happens on the worker in the meantime. They may call every method except
// [Worker.Close], [Endpoint.Close] and [Context.Close], which wait for that goroutine.
package ucx
