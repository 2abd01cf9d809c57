// SPDX-License-Identifier: Apache-2.0

// Package tools checks the tree as a whole: code that no program reaches, lines that are too long, and packages whose
// files use one another in circles. It is a module of its own, so that the linters that it names as tools are no
// requirement of the main module.
package tools
