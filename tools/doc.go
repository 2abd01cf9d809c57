// SPDX-License-Identifier: Apache-2.0

// Package tools checks the tree as a whole: code that no program reaches, and lines that are too long. It is a module
// of its own, so that the linters that it names as tools are no requirement of the main module.
package tools
