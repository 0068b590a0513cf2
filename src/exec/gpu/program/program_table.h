// SPDX-License-Identifier: Apache-2.0
/* All program kernels: X(name, functor). They have the types and operations of fused_table.h. */
#ifndef KOLO_EXEC_GPU_PROGRAM_PROGRAM_TABLE_H
#define KOLO_EXEC_GPU_PROGRAM_PROGRAM_TABLE_H

#include "exec/gpu/fused/fused_table.h"
#include "exec/gpu/program/program_body.h"

#define KOLO_PROGRAM_OF(...)  kolo_gpu::ProgramKernel<__VA_ARGS__::Functor>
#define KOLO_PROGRAM_TABLE(X) KOLO_FUSED_FOLDS(X)

#endif
