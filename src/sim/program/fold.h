// SPDX-License-Identifier: Apache-2.0
/* Folding of hosts that do the same at the same time.
 *
 * If every host's ranks run the programs of the first host's ranks, with partners at the same
 * places of a host, and with the same of their ops, then the ranks at one place of all hosts do
 * everything at the same time. One host's ranks then stand for all: a message to a rank of another
 * host is a message to the rank at the same place of this host, over the NIC. With one rank a host
 * this folds ring, recursive doubling and other plans in which all ranks are alike; with more,
 * those of their hierarchies. With leaf switches it is leaves that are alike. Trees and plans with a
 * root do not fold: their ranks differ.
 */
#ifndef KOLO_SIM_FOLD_H
#define KOLO_SIM_FOLD_H

#include "sim/program/program.h"

/* The number of ranks, from rank 0 on, that stand for all: those of one host, or with leaf switches
 * those of one leaf. It is all ranks if they differ, and on machines with noise or a slow rank.
 * Cost: the partners and messages of all ranks. */
int kolo_sim_fold(const struct kolo_sim_set *set, const struct kolo_sim_place *place);

#endif
