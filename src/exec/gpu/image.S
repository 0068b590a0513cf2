// SPDX-License-Identifier: Apache-2.0
/* The bytes that nvcc made of a file of kernels, under NAME. */
    .section .rodata
    .balign 16
    .globl NAME
    .hidden NAME
NAME:
    .incbin FATBIN
    .byte 0
    .section .note.GNU-stack, "", %progbits
