// SPDX-License-Identifier: Apache-2.0

package programtest

import (
	"context"

	pion "github.com/pion/webrtc/v4"
)

// OfferWHEP returns a viewer's offer with all candidates (draft-ietf-wish-whep).
func OfferWHEP(ctx context.Context, peer *pion.PeerConnection) (sdp string, err error) {
	receive := pion.RTPTransceiverInit{Direction: pion.RTPTransceiverDirectionRecvonly}
	if _, err := peer.AddTransceiverFromKind(pion.RTPCodecTypeVideo, receive); err != nil {
		return "", err
	}
	offer, err := peer.CreateOffer(nil)
	if err != nil {
		return "", err
	}
	gathered := pion.GatheringCompletePromise(peer)
	if err := peer.SetLocalDescription(offer); err != nil {
		return "", err
	}
	select {
	case <-gathered:
		return peer.LocalDescription().SDP, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
