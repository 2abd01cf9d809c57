// SPDX-License-Identifier: Apache-2.0

//go:build race

package isp

const raced = true
