// SPDX-License-Identifier: Apache-2.0
/* The bytes that nvcc made of fused.cu. */
    .section .rodata
    .balign 16
    .globl kolo_fused_fatbin
    .hidden kolo_fused_fatbin
kolo_fused_fatbin:
    .incbin FATBIN
    .byte 0
    .section .note.GNU-stack, "", %progbits
