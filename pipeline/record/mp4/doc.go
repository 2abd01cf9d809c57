// SPDX-License-Identifier: Apache-2.0

// Package mp4 writes and reads MP4 files of encoded pictures, H.264 or JPEG, in one track. A [Writer] writes fragmented
// MP4 (ISO/IEC 14496-12) while the pictures come, so a file that is cut anywhere is a file up to its last whole
// fragment. [Read] finds the pictures of such a file without reading them, and a [Span] is a part of them as an MP4
// file without fragments, which any player opens.
//
// A fragment is a ProducerReferenceTimeBox with the capture time of its first picture, an emsg box (ISO/IEC 23009-1) for
// each picture with a note, a moof box and an mdat box. The last box of a finished file is mfra, the index.
//
// Boxes are laid out and decoded by go-mp4 and mediacommon. What there is of every picture, as in the tables of samples,
// is encoded here, because these packages use reflection, which takes microseconds a number.
package mp4
