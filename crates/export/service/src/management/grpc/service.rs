//! The methods of the service.

use std::sync::Arc;

use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Code, Request, Response, Status};

use super::convert::Convert as _;
use super::export_v1::{
    AddExportRequest, AddExportResponse, AnswerStream, CheckExportsRequest, CheckExportsResponse,
    EvictClientRequest, EvictClientResponse, GetStatusRequest, ListClientsRequest,
    ListClientsResponse, ListExportsRequest, ListExportsResponse, ListStatesRequest,
    ListStatesResponse, Management, Outcome, ReloadExportsRequest, ReloadExportsResponse,
    RemoveExportRequest, RemoveExportResponse, SetDrainingRequest, SetDrainingResponse,
    SetExportRequest, SetExportResponse, Status as StatusMessage, UnlockRequest, UnlockResponse,
};
use crate::limits::{MANAGEMENT_CALLS_MAX, MANAGEMENT_PART_LEN};
use crate::management::{Administrator, Answer, Order, OrderError};
use crate::monitoring::report::Report;

#[derive(Clone)]
pub(super) struct ManagementService {
    report: Arc<Report>,
    calls: Arc<Semaphore>,
}

impl ManagementService {
    pub(super) fn new(report: Arc<Report>) -> Self {
        ManagementService { report, calls: Arc::new(Semaphore::new(MANAGEMENT_CALLS_MAX)) }
    }

    /// The permit ends with the answer.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Report) -> Result<T, OrderError> + Send + 'static,
    ) -> Result<(T, OwnedSemaphorePermit), Status> {
        let permit = self.calls.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{MANAGEMENT_CALLS_MAX} calls of administrators are under way; try again"
            ))
        })?;
        let report = self.report.clone();
        // A call that was given up still counts until its work ends.
        tokio::task::spawn_blocking(move || (work(&report), permit))
            .await
            .map_err(|error| Status::internal(error.to_string()))
            .and_then(|(done, permit)| Ok((done.map_err(status_of)?, permit)))
    }

    async fn order<R>(
        &self,
        request: Request<R>,
        order: impl FnOnce(R) -> Order,
    ) -> Result<Answer, Status> {
        let (by, order) = by(request, order)?;
        self.work(move |report| report.manager.carry_out(order, &by))
            .await
            .map(|(answer, _)| answer)
    }

    async fn list<T: Send + 'static, P: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&Report) -> Result<T, OrderError> + Send + 'static,
        parts: impl FnOnce(T, &mut Parts<P>),
    ) -> Outcome<AnswerStream<P>> {
        let (found, permit) = self.work(work).await?;
        let mut all = Parts::default();
        parts(found, &mut all);
        let stream = all.finish().into_iter().map(move |part| {
            let _until_the_stream_ends = &permit;
            Ok(part)
        });
        let stream = tonic::codegen::tokio_stream::iter(stream);
        Ok(Response::new(AnswerStream(Box::pin(stream))))
    }
}

/// Cuts lists into messages that each client takes.
struct Parts<P> {
    done: Vec<P>,
    open: P,
    open_len: usize,
}

impl<P: Default> Default for Parts<P> {
    fn default() -> Self {
        Parts { done: Vec::new(), open: P::default(), open_len: 0 }
    }
}

impl<P: Default> Parts<P> {
    fn extend<T: Message, I: IntoIterator<Item = T>>(
        &mut self,
        items: I,
        list: fn(&mut P) -> &mut Vec<T>,
    ) {
        for item in items {
            self.open_len += item.encoded_len();
            list(&mut self.open).push(item);
            if self.open_len >= MANAGEMENT_PART_LEN {
                self.done.push(std::mem::take(&mut self.open));
                self.open_len = 0;
            }
        }
    }

    /// Always has one message at least.
    fn finish(mut self) -> Vec<P> {
        self.done.push(self.open);
        self.done
    }
}

fn by<R>(
    request: Request<R>,
    order: impl FnOnce(R) -> Order,
) -> Result<(Administrator, Order), Status> {
    let (_, mut extensions, message) = request.into_parts();
    let by =
        extensions.remove::<Administrator>().ok_or_else(|| Status::internal("no administrator"))?;
    Ok((by, order(message)))
}

/// The message travels in a header.
fn status_of(error: OrderError) -> Status {
    let code = match error {
        OrderError::NotFound(_) => Code::NotFound,
        OrderError::Refused(_) => Code::FailedPrecondition,
        OrderError::Denied(_) => Code::PermissionDenied,
        OrderError::Io(_) => Code::Internal,
    };
    let mut text = error.to_string();
    if text.len() > ERROR_LEN_MAX {
        text.truncate((0..=ERROR_LEN_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0));
        text.push_str(" … (the log of the server has the rest)");
    }
    Status::new(code, text)
}

/// Clients take headers of 8 KiB at least, and a character may become 12 in them.
const ERROR_LEN_MAX: usize = 2048;

#[tonic::async_trait]
impl Management for ManagementService {
    async fn get_status(&self, _: Request<GetStatusRequest>) -> Outcome<StatusMessage> {
        let (status, _) = self.work(|report| Ok(report.status())).await?;
        Ok(Response::new(status.convert()))
    }

    async fn list_exports(
        &self,
        request: Request<ListExportsRequest>,
    ) -> Outcome<AnswerStream<ListExportsResponse>> {
        let (by, order) = by(request, |_| Order::ListExports)?;
        let work = move |report: &Report| report.manager.carry_out(order, &by);
        self.list(work, |answer, parts| {
            parts.extend(
                answer.exports.unwrap_or_default().convert(),
                |part: &mut ListExportsResponse| &mut part.exports,
            );
            parts.extend(answer.hidden, |part| &mut part.hidden);
        })
        .await
    }

    async fn check_exports(
        &self,
        request: Request<CheckExportsRequest>,
    ) -> Outcome<AnswerStream<CheckExportsResponse>> {
        let client = request.into_inner().client;
        self.list(
            move |report| report.manager.check(client.as_deref()),
            |checked, parts| {
                parts.extend(checked.exports.convert(), |part: &mut CheckExportsResponse| {
                    &mut part.exports
                });
                parts.extend(checked.warnings, |part| &mut part.warnings);
                parts.extend(checked.left_out, |part| &mut part.left_out);
            },
        )
        .await
    }

    async fn list_clients(
        &self,
        _: Request<ListClientsRequest>,
    ) -> Outcome<AnswerStream<ListClientsResponse>> {
        self.list(
            |report| Ok(report.status().clients),
            |clients, parts| {
                parts.extend(clients.convert(), |part: &mut ListClientsResponse| &mut part.clients);
            },
        )
        .await
    }

    async fn list_states(
        &self,
        request: Request<ListStatesRequest>,
    ) -> Outcome<AnswerStream<ListStatesResponse>> {
        let (by, order) = by(request, |request| Order::ListState { client: request.client })?;
        let work = move |report: &Report| report.manager.carry_out(order, &by);
        self.list(work, |answer, parts| {
            parts.extend(
                answer.states.unwrap_or_default().convert(),
                |part: &mut ListStatesResponse| &mut part.states,
            );
            parts.extend(answer.warnings, |part| &mut part.warnings);
        })
        .await
    }

    async fn add_export(&self, request: Request<AddExportRequest>) -> Outcome<AddExportResponse> {
        let order =
            |AddExportRequest { path, clients, keep }| Order::AddExport { path, clients, keep };
        let Answer { warnings, .. } = self.order(request, order).await?;
        Ok(Response::new(AddExportResponse { warnings }))
    }

    async fn set_export(&self, request: Request<SetExportRequest>) -> Outcome<SetExportResponse> {
        let order =
            |SetExportRequest { path, clients, keep }| Order::SetExport { path, clients, keep };
        let Answer { warnings, .. } = self.order(request, order).await?;
        Ok(Response::new(SetExportResponse { warnings }))
    }

    async fn remove_export(
        &self,
        request: Request<RemoveExportRequest>,
    ) -> Outcome<RemoveExportResponse> {
        let order = |RemoveExportRequest { path, keep }| Order::RemoveExport { path, keep };
        let Answer { warnings, .. } = self.order(request, order).await?;
        Ok(Response::new(RemoveExportResponse { warnings }))
    }

    async fn reload_exports(
        &self,
        request: Request<ReloadExportsRequest>,
    ) -> Outcome<ReloadExportsResponse> {
        let order = |request: ReloadExportsRequest| match request.discard_changes {
            true => Order::DiscardChanges,
            false => Order::Reload,
        };
        let Answer { warnings, .. } = self.order(request, order).await?;
        Ok(Response::new(ReloadExportsResponse { warnings }))
    }

    async fn evict_client(
        &self,
        request: Request<EvictClientRequest>,
    ) -> Outcome<EvictClientResponse> {
        let order = |EvictClientRequest { client }| Order::EvictClient { client };
        let Answer { ended, .. } = self.order(request, order).await?;
        Ok(Response::new(EvictClientResponse { ended: ended.unwrap_or_default().convert() }))
    }

    async fn unlock(&self, request: Request<UnlockRequest>) -> Outcome<UnlockResponse> {
        let Answer { ended, .. } =
            self.order(request, |UnlockRequest { path }| Order::Unlock { path }).await?;
        Ok(Response::new(UnlockResponse { ended: ended.unwrap_or_default().convert() }))
    }

    async fn set_draining(
        &self,
        request: Request<SetDrainingRequest>,
    ) -> Outcome<SetDrainingResponse> {
        self.order(request, |SetDrainingRequest { draining }| Order::Drain { on: draining })
            .await?;
        Ok(Response::new(SetDrainingResponse {}))
    }
}
