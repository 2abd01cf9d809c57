// SPDX-License-Identifier: Apache-2.0

// Package mp4 writes and reads MP4 files of encoded pictures, H.264 or JPEG, in one track. A [Writer] writes fragmented
// MP4 (ISO/IEC 14496-12) while the pictures come, so that a file that was cut is good up to its last whole fragment.
// [Read] finds the pictures of such a file without reading them. A [Span] presents a range of them as an MP4 file
// without fragments, which any player opens.
//
// A fragment consists of a ProducerReferenceTimeBox with the capture time of its first picture, an emsg box
// (ISO/IEC 23009-1) for each picture with a note, a moof box and an mdat box. The last box of a finished file is its
// index, mfra.
//
// The packages go-mp4 and mediacommon lay out and decode the boxes. Notes, and tables with an entry for each picture,
// are laid out and decoded here, because go-mp4 uses reflection, which takes microseconds for each number.
package mp4
