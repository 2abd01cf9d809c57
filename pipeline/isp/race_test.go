// SPDX-License-Identifier: Apache-2.0

//go:build race

package isp

func init() { raced = true }
